#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "backend/cpu/device/planes.h"
#include "backend/cpu/device/values.h"
#include "backend/cpu/isa/instruction_set.h"
#include "backend/cpu/norm/norm.h"
#include "backend/cpu/norm/norm_kernels.h"
#include "backend/cpu/norm/row_norm.h"
#include "backend/workspace.h"

LANES_BF16_TABLE(NormKernels, norm_kernels)

namespace ddp {
namespace {

using lanes::NormKernels;

// Shared by all layouts: the computations from a channel's sums.
class BatchNorm : public Op {
 public:
  explicit BatchNorm(const BatchNormSpec& spec) : spec_(spec), norm_(spec) {
    shared_ = workspace_.add<double>(exchanges() ? 2 * spec.shape.channels + 1 : 0);
  }

  OpTraits traits() const override {
    return {.saved_bytes = static_cast<std::size_t>(spec_.shape.channels) * sizeof(Normaliser),
            .workspace_bytes = workspace_.bytes(),
            .backward_reads_inputs = {0},
            .backward_reads_y = spec_.activation != Activation::none};
  }

 protected:
  std::int64_t plane() const { return spec_.shape.height * spec_.shape.width; }
  static Normaliser* normalisers(std::byte* saved) { return static_cast<Normaliser*>(static_cast<void*>(saved)); }
  // The elements of a channel in the active samples.
  double count_of(std::int64_t active) const { return static_cast<double>(active * plane()); }
  // The elements that the statistics depend on, of which the gradient of each is a share: infinitely many if they are frozen.
  double share_count(std::int64_t active) const {
    return spec_.frozen ? std::numeric_limits<double>::infinity() : count_of(active);
  }
  // Whether the statistics are those of all shards.
  bool exchanges() const { return spec_.synchronized && !spec_.frozen; }
  // Whether they are measured.
  bool measures(bool training) const { return training && !spec_.frozen; }

  // Over all logical shards.
  struct Whole {
    const double* sums = nullptr;  // [channels][2]
    double count = 0;

    NormSums of(std::int64_t channel) const { return {sums[2 * channel], sums[2 * channel + 1]}; }
  };
  // Adds the sums of all channels, own(channel) in this shard, and the numbers of elements.
  template <class F>
  Whole over_shards(const SumOverShards* sums, std::int64_t active, std::byte* workspace, F own) const {
    double* const all = shared_.in(workspace);
    const std::int64_t channels = spec_.shape.channels;
#pragma omp parallel for schedule(static)
    for (std::int64_t c = 0; c < channels; ++c) {
      const NormSums mine = own(c);
      all[2 * c] = mine.first;
      all[2 * c + 1] = mine.second;
    }
    all[2 * channels] = count_of(active);
    if (sums != nullptr) (*sums)(std::span(all, static_cast<std::size_t>(2 * channels + 1)));
    return {all, all[2 * channels]};
  }

  template <class Arguments>
  static NormLine line(std::int64_t channel, const Normaliser& n, const Arguments& a) {
    return NormArithmetic::line(n, a.parameters[0][channel], a.parameters[1][channel]);
  }
  static NormSlope slope(std::int64_t channel, const Normaliser& n, const NormSums& sums, double elements,
                         const BackwardArguments& a) {
    return NormArithmetic::slope(n, sums, elements, a.parameters[0][channel]);
  }
  // Writes the gradients of a channel's weight and bias, from these sums.
  static void write_gradients(std::int64_t channel, const Normaliser& n, const NormSums& sums,
                              const BackwardArguments& a) {
    a.parameter_gradients[0][channel] = NormArithmetic::weight_gradient(n, sums);
    a.parameter_gradients[1][channel] = NormArithmetic::bias_gradient(sums);
  }

  BatchNormSpec spec_;
  NormArithmetic norm_;
  Workspace workspace_;
  Workspace::Part<double> shared_;
};

// plain and lanes16: each row belongs to one channel. One thread processes a whole channel, so that its values are
// still in the cache when they are read again.
// Value: the element of activations.
template <class Value>
class RowBatchNorm final : public BatchNorm {
 public:
  RowBatchNorm(const BatchNormSpec& spec, Layout layout) : BatchNorm(spec), layout_(layout), row_(spec, layout) {}

  OpTraits traits() const override {
    OpTraits traits = BatchNorm::traits();
    traits.backward_reads_y = reads_y();
    return traits;
  }

  void forward(const ForwardArguments& a) override {
    const std::int64_t computed = computed_samples(a.active, spec_.batch, layout_);
    const auto moments = [&](std::int64_t c) { return row_.moments(rows<const Value>(a.x(), c), a.active); };
    Whole whole;
    const bool shared = a.training && exchanges();
    if (shared) whole = over_shards(a.sums, a.active, a.workspace, moments);
#pragma omp parallel for schedule(static)
    for (std::int64_t c = 0; c < spec_.shape.channels; ++c) {
      Normaliser n;
      if (measures(a.training)) {
        n = shared ? norm_.measured(c, whole.of(c), whole.count, a.statistics)
                   : norm_.measured(c, moments(c), count_of(a.active), a.statistics);
      } else {
        n = norm_.running(c, a.statistics);
      }
      if (a.training) normalisers(a.saved)[c] = n;
      row_.forward(n, line(c, n, a),
                   {rows<const Value>(a.x(), c),
                    spec_.add ? rows<const Value>(a.inputs[1], c) : ChannelRows<const Value>{}, rows<Value>(a.y, c)},
                   computed);
    }
  }

  void backward(const BackwardArguments& a) override {
    const auto rows_of = [&](std::int64_t c) {
      return typename RowNorm<Value>::Backward{rows<const Value>(a.x(), c),
                                               reads_y() ? rows<const Value>(a.y, c) : ChannelRows<const Value>{},
                                               rows<const Value>(a.dy, c), rows<Value>(a.dx(), c),
                                               spec_.add ? rows<Value>(a.input_gradients[1], c) : ChannelRows<Value>{}};
    };
    // Writes the gradients of the channel's weight and bias.
    const auto products = [&](std::int64_t c) {
      const Normaliser& n = normalisers(a.saved)[c];
      const NormSums total = row_.products(n, line(c, n, a), rows_of(c), a.active);
      write_gradients(c, n, total, a);
      return total;
    };
    Whole whole;
    if (exchanges()) whole = over_shards(a.sums, a.active, a.workspace, products);
#pragma omp parallel for schedule(static)
    for (std::int64_t c = 0; c < spec_.shape.channels; ++c) {
      const Normaliser n = normalisers(a.saved)[c];
      const NormSlope s =
          exchanges() ? slope(c, n, whole.of(c), whole.count, a) : slope(c, n, products(c), share_count(a.active), a);
      row_.backward(n, line(c, n, a), s, rows_of(c), a.active);
    }
    clear_rest_of(values<Value>(a.dx()), a.active);
    if (spec_.add) clear_rest_of(values<Value>(a.input_gradients[1]), a.active);
  }

 private:
  // The mask of the activation follows from x where nothing is added.
  bool reads_y() const { return spec_.add && spec_.activation != Activation::none; }
  template <class V, class From>
  ChannelRows<V> rows(From activations, std::int64_t channel) const {
    return {values<Value>(activations) + channel * row_.size(), spec_.shape.channels * row_.size()};
  }
  void clear_rest_of(Value* data, std::int64_t active) const {
    std::fill(data + row_.rows(active) * spec_.shape.channels * row_.size(),
              data + stored_elements(spec_.batch, spec_.shape, layout_), Value{});
  }

  Layout layout_;
  RowNorm<Value> row_;
};

// nhwc: every row contains all channels. Parts with a fixed number of rows are summed separately, then added in order.
class ChannelsBatchNorm final : public BatchNorm {
 public:
  explicit ChannelsBatchNorm(const BatchNormSpec& spec)
      : BatchNorm(spec), kernels_(lanes::norm_kernels()), activation_(RowNorm<float>::index_of(spec.activation)) {
    const std::int64_t all = spec.batch * plane();
    part_rows_ = std::max(kLeastRows, (all + kMostParts - 1) / kMostParts);
    sums_ = workspace_.add<double>(parts(all) * 2 * spec.shape.channels);
    for (auto& factor : factors_) factor = workspace_.add<float>(spec.shape.channels);
  }

  void forward(const ForwardArguments& a) override {
    if (measures(a.training)) {
      sum_parts(a.active, a.workspace, [&](std::int64_t first, std::int64_t rows, double* sums) {
        kernels_.channel_moments(a.x().fp32() + first * channels(), rows, channels(), sums);
      });
    }
    const auto own = [&](std::int64_t c) { return total(c, a.active, a.workspace); };
    const bool shared = a.training && exchanges();
    Whole whole;
    if (shared) whole = over_shards(a.sums, a.active, a.workspace, own);
    const auto factor = factors(a.workspace);
    for (std::int64_t c = 0; c < channels(); ++c) {
      const Normaliser n = shared                 ? norm_.measured(c, whole.of(c), whole.count, a.statistics)
                           : measures(a.training) ? norm_.measured(c, own(c), count_of(a.active), a.statistics)
                                                  : norm_.running(c, a.statistics);
      if (a.training) normalisers(a.saved)[c] = n;
      const NormLine l = line(c, n, a);
      factor[0][c] = n.mean;
      factor[1][c] = l.scale;
      factor[2][c] = l.shift;
    }
    each_part(spec_.batch * plane(), [&](std::int64_t, std::int64_t first, std::int64_t rows) {
      const std::int64_t at = first * channels();
      kernels_.channel_forward[activation_]({a.x().fp32() + at, spec_.add ? a.inputs[1].fp32() + at : nullptr,
                                             a.y.fp32() + at, rows, channels(), factor[0], factor[1], factor[2]});
    });
  }

  void backward(const BackwardArguments& a) override {
    const auto factor = factors(a.workspace);
    const auto task = [&](std::int64_t first, std::int64_t rows) {
      const std::int64_t at = first * channels();
      return lanes::NormChannelsGradient{a.x().fp32() + at,
                                         activation_ == 0 ? nullptr : a.y.fp32() + at,
                                         a.dy.fp32() + at,
                                         a.dx().fp32() + at,
                                         spec_.add ? a.input_gradients[1].fp32() + at : nullptr,
                                         rows,
                                         channels(),
                                         factor[0],
                                         factor[1],
                                         factor[2],
                                         factor[3]};
    };
    for (std::int64_t c = 0; c < channels(); ++c) factor[0][c] = normalisers(a.saved)[c].mean;
    sum_parts(a.active, a.workspace, [&](std::int64_t first, std::int64_t rows, double* sums) {
      kernels_.channel_products[activation_](task(first, rows), sums);
    });
    const auto own = [&](std::int64_t c) {
      const NormSums sums = total(c, a.active, a.workspace);
      write_gradients(c, normalisers(a.saved)[c], sums, a);
      return sums;
    };
    Whole whole;
    if (exchanges()) whole = over_shards(a.sums, a.active, a.workspace, own);
    for (std::int64_t c = 0; c < channels(); ++c) {
      const Normaliser& n = normalisers(a.saved)[c];
      const NormSlope s =
          exchanges() ? slope(c, n, whole.of(c), whole.count, a) : slope(c, n, own(c), share_count(a.active), a);
      factor[1][c] = s.scale;
      factor[2][c] = s.offset;
      factor[3][c] = s.slope;
    }
    each_part(a.active * plane(), [&](std::int64_t, std::int64_t first, std::int64_t rows) {
      kernels_.channel_backward[activation_](task(first, rows));
    });
    const std::int64_t active = a.active * spec_.shape.elements();
    const std::int64_t all = spec_.batch * spec_.shape.elements();
    std::fill(a.dx().fp32() + active, a.dx().fp32() + all, 0.0F);
    if (spec_.add) std::fill(a.input_gradients[1].fp32() + active, a.input_gradients[1].fp32() + all, 0.0F);
  }

 private:
  static constexpr std::int64_t kLeastRows = 64;
  static constexpr std::int64_t kMostParts = 64;

  std::int64_t channels() const { return spec_.shape.channels; }
  std::int64_t parts(std::int64_t rows) const { return (rows + part_rows_ - 1) / part_rows_; }
  std::array<float*, 4> factors(std::byte* workspace) const {
    return {factors_[0].in(workspace), factors_[1].in(workspace), factors_[2].in(workspace), factors_[3].in(workspace)};
  }

  // Calls f(part, first row, rows) for the parts of all rows.
  template <class F>
  void each_part(std::int64_t all, F f) const {
#pragma omp parallel for schedule(static)
    for (std::int64_t part = 0; part < parts(all); ++part) {
      const std::int64_t first = part * part_rows_;
      f(part, first, std::min(part_rows_, all - first));
    }
  }
  template <class F>
  void sum_parts(std::int64_t active, std::byte* workspace, F f) const {
    double* sums = sums_.in(workspace);
    each_part(active * plane(), [&](std::int64_t part, std::int64_t first, std::int64_t rows) {
      f(first, rows, sums + part * 2 * channels());
    });
  }
  NormSums total(std::int64_t channel, std::int64_t active, std::byte* workspace) const {
    const double* sums = sums_.in(workspace);
    NormSums all;
    for (std::int64_t part = 0; part < parts(active * plane()); ++part) {
      all.first += sums[part * 2 * channels() + channel];
      all.second += sums[(part * 2 + 1) * channels() + channel];
    }
    return all;
  }

  const NormKernels& kernels_;
  std::size_t activation_;
  std::int64_t part_rows_ = 0;
  Workspace::Part<double> sums_;
  std::array<Workspace::Part<float>, 4> factors_;
};

}  // namespace

std::unique_ptr<Op> make_batch_norm(const BatchNormSpec& spec, Layout layout, Element element) {
  // In plain feature vectors, rows contain all channels too.
  const bool rows_of_channels =
      layout == Layout::nhwc || (layout == Layout::plain && spec.shape.height == 1 && spec.shape.width == 1);
  if (rows_of_channels) {
    return element == Element::fp32 ? std::make_unique<ChannelsBatchNorm>(spec) : nullptr;
  }
  if (element == Element::bf16) return std::make_unique<RowBatchNorm<Bf16>>(spec, layout);
  return std::make_unique<RowBatchNorm<float>>(spec, layout);
}

}  // namespace ddp
