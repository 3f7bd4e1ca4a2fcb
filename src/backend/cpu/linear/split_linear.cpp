// Linear layers whose outputs are divided among the ranks (backend/ops/linear.h).
#include <algorithm>
#include <cstring>

#include "backend/arithmetic.h"
#include "backend/cpu/linear/linear.h"
#include "backend/cpu/onednn/onednn.h"
#include "backend/workspace.h"
#include "base/error.h"

namespace ddp {
namespace {

LinearSpec whole_layer(LinearSpec spec) {
  spec.parts = 1;
  return spec;
}

// One part of the outputs, for the samples of all ranks. ReLU is applied where the outputs are read.
LinearSpec part_of_layer(LinearSpec spec) {
  spec.batch *= spec.parts;
  spec.outputs /= spec.parts;
  spec.relu = false;
  spec.parts = 1;
  return spec;
}

// Forward: every rank receives the inputs of all samples, computes its outputs of them, and sends each rank those of its
// samples. Backward: every rank receives the gradients of its outputs for all samples, which give the gradient of its
// rows of the weight, and its share of the gradient of the inputs; the shares are added in the order of the ranks.
class SplitLinear final : public Op {
 public:
  explicit SplitLinear(const LinearSpec& spec)
      : spec_(spec),
        own_(spec.outputs / spec.parts),
        parts_(static_cast<std::size_t>(spec.parts)),
        whole_(make_onednn_linear(whole_layer(spec))),
        part_(make_onednn_linear(part_of_layer(spec))),
        out_(parts_),
        in_(parts_) {
    DDP_ASSERT(spec.parts > 1 && own_ * spec.parts == spec.outputs);
    const std::int64_t inputs = spec.batch * spec.parts * spec.inputs;
    Workspace saved;
    all_x_ = saved.add<float>(inputs);
    saved_bytes_ = saved.bytes();
    of_part_ = layout_.add<float>(spec.batch * spec.outputs);
    by_part_ = layout_.add<float>(spec.batch * spec.outputs);
    all_dx_ = layout_.add<float>(spec.input_gradient ? inputs : 0);
    shares_ = layout_.add<float>(spec.input_gradient ? inputs : 0);
    inner_ = layout_.add<std::byte>(
        static_cast<std::int64_t>(std::max(whole_->traits().workspace_bytes, part_->traits().workspace_bytes)));
  }

  OpTraits traits() const override {
    return {.saved_bytes = saved_bytes_,
            .workspace_bytes = layout_.bytes(),
            .backward_reads_inputs = {0},
            .backward_reads_y = spec_.relu};
  }

  void forward(const ForwardArguments& a) override {
    if (a.exchange == nullptr) {
      ForwardArguments whole = a;
      whole.workspace = inner_.in(a.workspace);
      whole_->forward(whole);
      return;
    }
    float* all_x = all_x_.in(a.saved);
    float* of_part = of_part_.in(a.workspace);
    float* by_part = by_part_.in(a.workspace);
    const std::int64_t inputs = spec_.inputs;
    for (std::size_t p = 0; p < parts_; ++p) out_[p] = floats(a.x().fp32(), a.active * inputs);
    receive_rows(*a.exchange, all_x, inputs);
    a.exchange->move(out_, in_);
    clear_from(all_x, all_samples(*a.exchange), inputs);
    part_->forward({.inputs = {static_cast<const float*>(all_x)},
                    .y = of_part,
                    .parameters = parameters_of(*a.exchange, a.parameters),
                    .workspace = inner_.in(a.workspace),
                    .active = all_samples(*a.exchange)});
    send_rows(*a.exchange, of_part, own_);
    receive_blocks(by_part, a.active * own_);
    a.exchange->move(out_, in_);
    join_columns(by_part, a.active, a.y.fp32());
  }

  void backward(const BackwardArguments& a) override {
    if (a.exchange == nullptr) {
      BackwardArguments whole = a;
      whole.workspace = inner_.in(a.workspace);
      whole_->backward(whole);
      return;
    }
    const std::int64_t samples = all_samples(*a.exchange);
    float* of_part = of_part_.in(a.workspace);
    float* by_part = by_part_.in(a.workspace);
    divide_columns(a.dy.fp32(), spec_.relu ? a.y.fp32() : nullptr, a.active, by_part);
    for (std::size_t p = 0; p < parts_; ++p) {
      out_[p] = floats(by_part + static_cast<std::int64_t>(p) * a.active * own_, a.active * own_);
    }
    receive_rows(*a.exchange, of_part, own_);
    a.exchange->move(out_, in_);
    clear_from(of_part, samples, own_);
    float* all_dx = all_dx_.in(a.workspace);
    const auto first = static_cast<std::int64_t>(a.exchange->part) * own_;
    BackwardArguments part{.inputs = {static_cast<const float*>(all_x_.in(a.saved))},
                           .dy = static_cast<const float*>(of_part),
                           .input_gradients = {all_dx},
                           .parameters = parameters_of(*a.exchange, a.parameters),
                           .parameter_gradients = {a.parameter_gradients[0] + first * spec_.inputs,
                                                   spec_.bias ? a.parameter_gradients[1] + first : nullptr},
                           .workspace = inner_.in(a.workspace),
                           .active = samples};
    part_->backward(part);
    if (!spec_.input_gradient) return;
    float* shares = shares_.in(a.workspace);
    send_rows(*a.exchange, all_dx, spec_.inputs);
    receive_blocks(shares, a.active * spec_.inputs);
    a.exchange->move(out_, in_);
    add_shares(shares, a.active * spec_.inputs, a.dx().fp32());
    std::fill(a.dx().fp32() + a.active * spec_.inputs, a.dx().fp32() + spec_.batch * spec_.inputs, 0.0F);
  }

 private:
  static std::span<const float> floats(const float* begin, std::int64_t count) {
    return {begin, static_cast<std::size_t>(count)};
  }

  static std::int64_t all_samples(const ShardExchange& exchange) {
    std::int64_t samples = 0;
    for (const std::int64_t each : exchange.samples) samples += each;
    return samples;
  }

  // Rows of all samples, those of each part behind one another.
  void send_rows(const ShardExchange& exchange, const float* rows, std::int64_t width) {
    DDP_ASSERT(exchange.samples.size() == parts_);
    for (std::size_t p = 0; p < parts_; ++p) {
      out_[p] = floats(rows, exchange.samples[p] * width);
      rows += exchange.samples[p] * width;
    }
  }
  void receive_rows(const ShardExchange& exchange, float* rows, std::int64_t width) {
    DDP_ASSERT(exchange.samples.size() == parts_);
    for (std::size_t p = 0; p < parts_; ++p) {
      in_[p] = {rows, static_cast<std::size_t>(exchange.samples[p] * width)};
      rows += exchange.samples[p] * width;
    }
  }
  // A block from each part, of this rank's samples.
  void receive_blocks(float* blocks, std::int64_t count) {
    for (std::size_t p = 0; p < parts_; ++p) {
      in_[p] = {blocks + static_cast<std::int64_t>(p) * count, static_cast<std::size_t>(count)};
    }
  }

  // The operator computes whole batches: samples that do not exist contribute zeros.
  void clear_from(float* rows, std::int64_t samples, std::int64_t width) const {
    std::fill(rows + samples * width, rows + spec_.batch * spec_.parts * width, 0.0F);
  }

  ArgumentList<const float*> parameters_of(const ShardExchange& exchange,
                                           const ArgumentList<const float*>& parameters) const {
    const auto first = static_cast<std::int64_t>(exchange.part) * own_;
    return {parameters[0] + first * spec_.inputs, spec_.bias ? parameters[1] + first : nullptr};
  }

  // From [part][sample][own outputs] to [sample][outputs].
  void join_columns(const float* by_part, std::int64_t active, float* y) const {
#pragma omp parallel for schedule(static)
    for (std::int64_t sample = 0; sample < active; ++sample) {
      for (std::int64_t p = 0; p < spec_.parts; ++p) {
        const float* from = by_part + (p * active + sample) * own_;
        float* to = y + sample * spec_.outputs + p * own_;
        for (std::int64_t o = 0; o < own_; ++o) to[o] = spec_.relu ? relu(from[o]) : from[o];
      }
    }
    std::fill(y + active * spec_.outputs, y + spec_.batch * spec_.outputs, 0.0F);
  }

  // The reverse; with `y`, the gradient before ReLU.
  void divide_columns(const float* dy, const float* y, std::int64_t active, float* by_part) const {
#pragma omp parallel for schedule(static)
    for (std::int64_t sample = 0; sample < active; ++sample) {
      for (std::int64_t p = 0; p < spec_.parts; ++p) {
        const std::int64_t at = sample * spec_.outputs + p * own_;
        float* to = by_part + (p * active + sample) * own_;
        for (std::int64_t o = 0; o < own_; ++o)
          to[o] = y == nullptr ? dy[at + o] : relu_gradient(y[at + o], dy[at + o]);
      }
    }
  }

  void add_shares(const float* shares, std::int64_t count, float* dx) const {
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) {
      float sum = shares[i];
      for (std::int64_t p = 1; p < spec_.parts; ++p) sum += shares[p * count + i];
      dx[i] = sum;
    }
  }

  LinearSpec spec_;
  std::int64_t own_;  // outputs of a part
  std::size_t parts_;
  std::unique_ptr<Op> whole_;
  std::unique_ptr<Op> part_;
  std::size_t saved_bytes_ = 0;
  Workspace layout_;
  Workspace::Part<float> all_x_;            // [all samples][inputs]
  Workspace::Part<float> of_part_;          // [all samples][own outputs]: y or dy
  Workspace::Part<float> by_part_;          // [part][active][own outputs]: y or dy
  Workspace::Part<float> all_dx_, shares_;  // [all samples][inputs], [part][active][inputs]
  Workspace::Part<std::byte> inner_;
  // The messages; kept between calls, so that a step allocates nothing.
  std::vector<std::span<const float>> out_;
  std::vector<std::span<float>> in_;
};

}  // namespace

std::unique_ptr<Op> make_split_linear(const LinearSpec& spec) { return std::make_unique<SplitLinear>(spec); }

}  // namespace ddp
