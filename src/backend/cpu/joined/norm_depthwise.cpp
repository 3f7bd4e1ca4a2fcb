// Batch normalisation, depthwise convolution and batch normalisation as one operator: all three treat each channel by
// itself, so one thread takes a channel through them, band of rows by band of rows. What lies in between stays in the cache;
// backward computes it again. Of nine passes over memory in forward and twelve in backward, counting that a write reads
// first, three and four remain.
//
// The kernels are those of the separate operators, and so are the bits of the results.
#include <omp.h>

#include "backend/cpu/conv/depthwise/depthwise.h"
#include "backend/cpu/conv/depthwise/depthwise_planes.h"
#include "backend/cpu/device/planes.h"
#include "backend/cpu/joined/joined.h"
#include "backend/cpu/norm/row_norm.h"
#include "backend/workspace.h"

namespace ddp {
namespace {

// Value: the element of activations.
template <class Value>
class NormDepthwise final : public Op {
 public:
  NormDepthwise(const BatchNormSpec& before, const ConvSpec& conv, const BatchNormSpec& after)
      : conv_(conv),
        threads_(omp_get_max_threads()),
        blocks_(sample_blocks(conv.batch)),
        planes_(conv, workspace_, threads_),
        band_rows_(planes_.band_rows()),
        x_row_(kLanes * conv.input.width),
        y_row_(planes_.y_plane() / planes_.rows()),
        before_(before, Layout::lanes16),
        after_(after, Layout::lanes16),
        norm_before_(before),
        norm_after_(after),
        normalised_(workspace_.add<Value>(threads_ * planes_.band_values())),
        convolved_(workspace_.add<Value>(threads_ * blocks_ * after_.size())) {}

  OpTraits traits() const override {
    return {.saved_bytes = static_cast<std::size_t>(2 * channels()) * sizeof(Normaliser),
            .workspace_bytes = workspace_.bytes(),
            .backward_reads_inputs = {0}};
  }

  void forward(const ForwardArguments& a) override {
    const float* factors = planes_.factors(a.parameters[kWeight], a.workspace);
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t c = 0; c < channels(); ++c) forward_channel(a, c, factors + c * planes_.taps());
  }

  void backward(const BackwardArguments& a) override {
    const float* factors = planes_.factors(a.parameters[kWeight], a.workspace);
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t c = 0; c < channels(); ++c) backward_channel(a, c, factors);
    clear_rest(values<Value>(a.dx()), a.active, conv_.batch, conv_.input, Layout::lanes16);
  }

 private:
  using Gradient = typename RowNorm<Value>::Backward;

  // The places of the parameters.
  static constexpr std::size_t kBefore = 0;
  static constexpr std::size_t kWeight = 2;
  static constexpr std::size_t kAfter = 3;

  std::int64_t channels() const { return conv_.output_channels; }
  Normaliser* saved_before(std::byte* saved) const { return static_cast<Normaliser*>(static_cast<void*>(saved)); }
  Normaliser* saved_after(std::byte* saved) const { return saved_before(saved) + channels(); }

  template <class Arguments>
  static NormLine line_before(const Arguments& a, std::int64_t c, const Normaliser& n) {
    return NormArithmetic::line(n, a.parameters[kBefore][c], a.parameters[kBefore + 1][c]);
  }
  template <class Arguments>
  static NormLine line_after(const Arguments& a, std::int64_t c, const Normaliser& n) {
    return NormArithmetic::line(n, a.parameters[kAfter][c], a.parameters[kAfter + 1][c]);
  }

  // The planes of a channel.
  template <class V, class From>
  ChannelRows<V> channel(From activations, std::int64_t c, std::int64_t plane) const {
    return {values<Value>(activations) + c * plane, channels() * plane};
  }
  // What a thread keeps: the planes of all blocks after the convolution, and a band before it.
  Value* convolved(std::byte* workspace) const {
    return convolved_.in(workspace) + omp_get_thread_num() * blocks_ * after_.size();
  }
  Value* normalised(std::byte* workspace) const {
    return normalised_.in(workspace) + omp_get_thread_num() * planes_.band_values();
  }

  // Calls f for the bands of a plane.
  template <class F>
  void each_band(F f) const {
    for (int begin = 0; begin < planes_.rows(); begin += band_rows_) {
      f(planes_.band(begin, std::min(begin + band_rows_, planes_.rows())));
    }
  }

  // Sums a row's values as soon as they are there, piece by piece.
  class Summed {
   public:
    explicit Summed(std::int64_t size) : size_(size) {}
    // Calls add(begin, end) for those that are new among the first `ready`.
    template <class F>
    void up_to(std::int64_t ready, F add) {
      const std::int64_t end = ready == size_ ? ready : ready / lanes::kSummedPiece * lanes::kSummedPiece;
      if (end > summed_) add(summed_, end);
      summed_ = end;
    }

   private:
    std::int64_t size_, summed_ = 0;
  };

  Normaliser measured(const ForwardArguments& a, const NormArithmetic& norm, std::int64_t c, const NormSums& sums,
                      std::int64_t size, float* moving, Normaliser* saved) const {
    return saved[c] = norm.measured(c, sums, static_cast<double>(a.active * size / kLanes), moving);
  }

  void forward_channel(const ForwardArguments& a, std::int64_t c, const float* factors) const {
    const auto x = channel<const Value>(a.x(), c, before_.size());
    const auto y = channel<Value>(a.y, c, after_.size());
    float* const moving = a.statistics;
    float* const moving_after = moving + 2 * channels();
    const Normaliser first = a.training ? measured(a, norm_before_, c, before_.moments(x, a.active), before_.size(),
                                                   moving, saved_before(a.saved))
                                        : norm_before_.running(c, moving);
    const NormLine line = line_before(a, c, first);
    Value* const band_x = normalised(a.workspace);
    const NormSums sums = after_.sum(a.active, [&](std::int64_t b, double* of_row) {
      Summed summed(after_.size());
      each_band([&](const PlaneBand& band) {
        normalise(first, line, x[b], band, band_x);
        planes_.forward(factors, 0.0F, band, band_x, y[b]);
        if (!a.training) return;
        summed.up_to(band.end * y_row_, [&](std::int64_t begin, std::int64_t end) {
          after_.add_moments(y[b] + begin, end - begin, of_row);
        });
      });
    });
    const Normaliser second = a.training
                                  ? measured(a, norm_after_, c, sums, after_.size(), moving_after, saved_after(a.saved))
                                  : norm_after_.running(c, moving_after);
    after_.forward(second, line_after(a, c, second), {y, {}, y}, a.active);
  }

  // The rows of the input that a band reads.
  void normalise(const Normaliser& n, const NormLine& line, const Value* x, const PlaneBand& band, Value* to) const {
    before_.forward(n, line, x + band.first * x_row_, to, (band.last - band.first) * x_row_);
  }

  // Writes the gradients of the parameters of a normalisation; what backward needs of it follows.
  static NormSlope gradients(const RowNorm<Value>& row, const Normaliser& n, const NormSums& sums,
                             const BackwardArguments& a, std::size_t weight, std::int64_t c) {
    a.parameter_gradients[weight][c] = NormArithmetic::weight_gradient(n, sums);
    a.parameter_gradients[weight + 1][c] = NormArithmetic::bias_gradient(sums);
    return NormArithmetic::slope(n, sums, static_cast<double>(a.active * row.size() / kLanes), a.parameters[weight][c]);
  }

  void backward_channel(const BackwardArguments& a, std::int64_t c, const float* factors) const {
    const auto x = channel<const Value>(a.x(), c, before_.size());
    const auto dx = channel<Value>(a.dx(), c, before_.size());
    Value* const band_x = normalised(a.workspace);
    const ChannelRows<Value> between{convolved(a.workspace), after_.size()};
    const Normaliser first = saved_before(a.saved)[c];
    const NormLine line = line_before(a, c, first);
    const Normaliser second = saved_after(a.saved)[c];
    const NormLine after = line_after(a, c, second);
    // The gradient of the convolution's result replaces the result.
    const Gradient inner{between, {}, channel<const Value>(a.dy, c, after_.size()), between, {}};
    const NormSums inner_sums = after_.sum(a.active, [&](std::int64_t b, double* of_row) {
      Summed summed(after_.size());
      each_band([&](const PlaneBand& band) {
        normalise(first, line, x[b], band, band_x);
        planes_.forward(factors + c * planes_.taps(), 0.0F, band, band_x, between[b]);
        summed.up_to(band.end * y_row_, [&](std::int64_t begin, std::int64_t end) {
          after_.add_products(second, after, inner, {b, begin, end}, of_row);
        });
      });
    });
    const NormSlope slope = gradients(after_, second, inner_sums, a, kAfter, c);
    const Gradient outer{x, {}, dx, dx, {}};
    planes_.pack(c, factors, a.workspace);
    planes_.begin_weights(a.workspace);
    const NormSums outer_sums = before_.sum(a.active, [&](std::int64_t b, double* of_row) {
      Summed summed(before_.size());
      std::int64_t replaced = 0;
      each_band([&](const PlaneBand& band) {
        normalise(first, line, x[b], band, band_x);
        const std::int64_t read = planes_.data_reads(band) * y_row_;
        after_.backward(second, after, slope, inner, {b, replaced, read}, a.active);
        replaced = read;
        planes_.add_weights(band, band_x, between[b], a.workspace);
        planes_.data(c, band, between[b], dx[b], a.workspace);
        summed.up_to(planes_.data_begin(band.end) * x_row_, [&](std::int64_t begin, std::int64_t end) {
          before_.add_products(first, line, outer, {b, begin, end}, of_row);
        });
      });
    });
    planes_.end_weights(a.parameter_gradients[kWeight] + c * planes_.taps(), a.workspace);
    before_.backward(first, line, gradients(before_, first, outer_sums, a, kBefore, c), outer, a.active);
  }

  ConvSpec conv_;
  int threads_;
  std::int64_t blocks_;
  Workspace workspace_;
  DepthwisePlanes<Value> planes_;
  int band_rows_;
  std::int64_t x_row_, y_row_;  // values of a row of a plane
  RowNorm<Value> before_, after_;
  NormArithmetic norm_before_, norm_after_;
  Workspace::Part<Value> normalised_, convolved_;
};

bool joins(const BatchNormSpec& norm) { return !norm.add && !norm.synchronized && !norm.input_bias; }

}  // namespace

std::unique_ptr<Op> make_norm_depthwise(const BatchNormSpec& before, const ConvSpec& conv, const BatchNormSpec& after,
                                        Element element) {
  if (!joins(before) || !joins(after) || !lanes_depthwise_supported(conv) || conv.bias || !conv.input_gradient) {
    return nullptr;
  }
  if (element == Element::bf16) return std::make_unique<NormDepthwise<Bf16>>(before, conv, after);
  return std::make_unique<NormDepthwise<float>>(before, conv, after);
}

}  // namespace ddp
