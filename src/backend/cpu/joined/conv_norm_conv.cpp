// Convolution, batch normalisation and convolution as one operator, computed in parts of some blocks of 16 samples: the first
// one's results are summed while they are in the cache, and are normalised part by part for the second one, in backward again,
// so that the normalised values are never stored as a whole. Of six passes over memory in forward and eight in backward for
// what lies between the convolutions, counting that a write reads first, three and five remain.
//
// The kernels are those of the separate operators, and so are the bits of the results.
#include <omp.h>

#include <algorithm>
#include <utility>

#include "backend/cpu/device/planes.h"
#include "backend/cpu/joined/joined.h"
#include "backend/cpu/norm/row_norm.h"
#include "backend/workspace.h"

namespace ddp {
namespace {

// Value: the element of activations.
template <class Value>
class ConvNormConv final : public Op {
 public:
  ConvNormConv(std::unique_ptr<BlockConv> first, const BatchNormSpec& norm, std::unique_ptr<BlockConv> second)
      : first_(std::move(first)),
        second_(std::move(second)),
        norm_(norm),
        row_(norm, Layout::lanes16),
        channels_(norm.shape.channels),
        threads_(omp_get_max_threads()),
        norm_place_(first_->spec().bias ? 2 : 1) {
    const std::int64_t blocks = sample_blocks(norm.batch);
    normalisers_ = saved_.add<Normaliser>(channels_);
    convolved_ = saved_.add<Value>(blocks * block());
    inner_ = workspace_.add<std::byte>(
        static_cast<std::int64_t>(std::max(first_->traits().workspace_bytes, second_->traits().workspace_bytes)));
    const std::int64_t part =
        std::max({second_->forward_blocks(), second_->backward_blocks(), first_->backward_blocks()});
    part_ = workspace_.add<Value>(std::min(part, blocks) * block());
    gradient_ = workspace_.add<Value>(blocks * block());
    sums_ = workspace_.add<NormSums>(channels_);
    slopes_ = workspace_.add<NormSlope>(channels_);
  }

  OpTraits traits() const override {
    return {.saved_bytes = saved_.bytes(), .workspace_bytes = workspace_.bytes(), .backward_reads_inputs = {0}};
  }

  void forward(const ForwardArguments& a) override {
    Value* const convolved = convolved_.in(a.saved);
    ForwardArguments front = a;
    front.y = convolved;
    front.saved = nullptr;
    front.workspace = inner_.in(a.workspace);
    clear_sums(a.workspace);
    first_->begin_forward(front);
    each_part(a.active, first_->forward_blocks(), [&](std::int64_t begin, std::int64_t count) {
      const ForwardArguments part = part_of(front, first_->spec(), begin, count);
      first_->forward_part(part);
      if (a.training) add_moments(a.workspace, convolved + begin * block(), part.active);
    });
    find_normalisers(a);
    ForwardArguments back = a;
    back.inputs = {};
    back.saved = nullptr;
    back.workspace = inner_.in(a.workspace);
    back.parameters = a.parameters.from(second_place());
    second_->begin_forward(back);
    each_part(a.active, second_->forward_blocks(), [&](std::int64_t begin, std::int64_t count) {
      normalise(a.parameters, a.saved, begin, count, part_.in(a.workspace));
      ForwardArguments part = part_of(back, second_->spec(), begin, count);
      part.inputs = {part_.in(a.workspace)};
      second_->forward_part(part);
    });
  }

  void backward(const BackwardArguments& a) override {
    backward_second(a);
    for (std::int64_t c = 0; c < channels_; ++c) {
      const Normaliser& n = normalisers_.in(a.saved)[c];
      const NormSums& sums = sums_.in(a.workspace)[c];
      a.parameter_gradients[norm_place_][c] = NormArithmetic::weight_gradient(n, sums);
      a.parameter_gradients[norm_place_ + 1][c] = NormArithmetic::bias_gradient(sums);
      slopes_.in(a.workspace)[c] = NormArithmetic::slope(n, sums, count_of(a.active), a.parameters[norm_place_][c]);
    }
    backward_first(a);
  }

 private:
  using Gradient = typename RowNorm<Value>::Backward;
  using Parameters = ArgumentList<const float*>;

  // The values of a block of what lies between the convolutions, and of one of its channels.
  std::int64_t block() const { return channels_ * row_.size(); }
  std::int64_t plane() const { return row_.size(); }
  double count_of(std::int64_t active) const { return static_cast<double>(active * plane() / kLanes); }

  // Calls f(first block, number of blocks) for the parts of the active samples.
  template <class F>
  static void each_part(std::int64_t active, std::int64_t together, F f) {
    const std::int64_t blocks = sample_blocks(active);
    for (std::int64_t begin = 0; begin < blocks; begin += together) f(begin, std::min(together, blocks - begin));
  }

  // The place of the second convolution's parameters.
  std::size_t second_place() const { return norm_place_ + 2; }

  void clear_sums(std::byte* workspace) const { std::fill_n(sums_.in(workspace), channels_, NormSums{}); }

  // Adds moments of a part's values, of which `active` samples count.
  void add_moments(std::byte* workspace, const Value* x, std::int64_t active) const {
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t c = 0; c < channels_; ++c) {
      for (std::int64_t row = 0; row < row_.rows(active); ++row) {
        row_.add_row(row, active, sums_.in(workspace)[c], [&](std::int64_t r, double* sums) {
          row_.add_moments(x + r * block() + c * plane(), plane(), sums);
        });
      }
    }
  }

  void find_normalisers(const ForwardArguments& a) const {
    for (std::int64_t c = 0; c < channels_; ++c) {
      normalisers_.in(a.saved)[c] = a.training
                                        ? norm_.measured(c, sums_.in(a.workspace)[c], count_of(a.active), a.statistics)
                                        : norm_.running(c, a.statistics);
    }
  }

  NormLine line(const Parameters& parameters, std::int64_t c, const Normaliser& n) const {
    return NormArithmetic::line(n, parameters[norm_place_][c], parameters[norm_place_ + 1][c]);
  }

  void normalise(const Parameters& parameters, std::byte* saved, std::int64_t begin, std::int64_t count,
                 Value* to) const {
    const Value* const x = convolved_.in(saved) + begin * block();
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_)
    for (std::int64_t b = 0; b < count; ++b) {
      for (std::int64_t c = 0; c < channels_; ++c) {
        const Normaliser& n = normalisers_.in(saved)[c];
        const std::int64_t at = b * block() + c * plane();
        row_.forward(n, line(parameters, c, n), x + at, to + at, plane());
      }
    }
  }

  // A part's rows of a channel, and where gradients go.
  Gradient rows_of(const BackwardArguments& a, std::int64_t begin, std::int64_t c, Value* dx) const {
    const std::int64_t at = begin * block() + c * plane();
    return {.x = {convolved_.in(a.saved) + at, block()},
            .y = {},
            .dy = {gradient_.in(a.workspace) + at, block()},
            .dx = {dx == nullptr ? nullptr : dx + c * plane(), block()},
            .dx2 = {}};
  }

  // Leaves the gradient of the normalised values, and the sums of it.
  void backward_second(const BackwardArguments& a) const {
    BackwardArguments back = a;
    back.inputs = {};
    back.input_gradients = {gradient_.in(a.workspace)};
    back.saved = nullptr;
    back.workspace = inner_.in(a.workspace);
    back.parameters = a.parameters.from(second_place());
    back.parameter_gradients = a.parameter_gradients.from(second_place());
    clear_sums(a.workspace);
    if (a.active == 0) second_->clear_gradients(back);
    second_->begin_backward(back);
    each_part(a.active, second_->backward_blocks(), [&](std::int64_t begin, std::int64_t count) {
      normalise(a.parameters, a.saved, begin, count, part_.in(a.workspace));
      BackwardArguments part = part_of(back, second_->spec(), begin, count);
      part.inputs = {part_.in(a.workspace)};
      second_->backward_part(part, begin == 0, begin + count == sample_blocks(a.active));
      add_products(a, begin, part.active);
    });
  }

  void add_products(const BackwardArguments& a, std::int64_t begin, std::int64_t active) const {
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t c = 0; c < channels_; ++c) {
      const Normaliser& n = normalisers_.in(a.saved)[c];
      const NormLine scale = line(a.parameters, c, n);
      const Gradient rows = rows_of(a, begin, c, nullptr);
      for (std::int64_t row = 0; row < row_.rows(active); ++row) {
        row_.add_row(row, active, sums_.in(a.workspace)[c], [&](std::int64_t r, double* sums) {
          row_.add_products(n, scale, rows, {r, 0, plane()}, sums);
        });
      }
    }
  }

  void backward_first(const BackwardArguments& a) const {
    BackwardArguments front = a;
    front.y = nullptr;
    front.dy = nullptr;
    front.saved = nullptr;
    front.workspace = inner_.in(a.workspace);
    if (a.active == 0) first_->clear_gradients(front);
    first_->begin_backward(front);
    each_part(a.active, first_->backward_blocks(), [&](std::int64_t begin, std::int64_t count) {
      BackwardArguments part = part_of(front, first_->spec(), begin, count);
      Value* const dy = part_.in(a.workspace);
#pragma omp parallel for schedule(static) num_threads(threads_)
      for (std::int64_t c = 0; c < channels_; ++c) {
        const Normaliser& n = normalisers_.in(a.saved)[c];
        const Gradient rows = rows_of(a, begin, c, dy);
        const NormSlope& slope = slopes_.in(a.workspace)[c];
        for (std::int64_t row = 0; row < count; ++row) {
          row_.backward(n, line(a.parameters, c, n), slope, rows, {row, 0, plane()}, part.active);
        }
      }
      part.dy = dy;
      first_->backward_part(part, begin == 0, begin + count == sample_blocks(a.active));
    });
    const ConvSpec& spec = first_->spec();
    if (spec.input_gradient) clear_rest(values<Value>(a.dx()), a.active, spec.batch, spec.input, Layout::lanes16);
  }

  std::unique_ptr<BlockConv> first_, second_;
  NormArithmetic norm_;
  RowNorm<Value> row_;
  std::int64_t channels_;
  int threads_;
  std::size_t norm_place_;  // of its parameters
  Workspace saved_, workspace_;
  Workspace::Part<Normaliser> normalisers_;
  Workspace::Part<Value> convolved_, part_, gradient_;
  Workspace::Part<std::byte> inner_;
  Workspace::Part<NormSums> sums_;
  Workspace::Part<NormSlope> slopes_;
};

}  // namespace

std::unique_ptr<Op> make_conv_norm_conv(std::unique_ptr<BlockConv> first, const BatchNormSpec& norm,
                                        std::unique_ptr<BlockConv> second, Element element) {
  const bool plain = !norm.add && !norm.synchronized && !norm.input_bias;
  const bool joins = !first->spec().relu && !second->spec().relu && second->spec().input_gradient;
  if (!plain || !joins) return nullptr;
  if (element == Element::bf16) {
    return std::make_unique<ConvNormConv<Bf16>>(std::move(first), norm, std::move(second));
  }
  return std::make_unique<ConvNormConv<float>>(std::move(first), norm, std::move(second));
}

}  // namespace ddp
