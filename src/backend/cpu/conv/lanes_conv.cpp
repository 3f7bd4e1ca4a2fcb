// Convolution in lanes16: each direction by the tile that is chosen for it (tiles/direction.h), and what is around them, the
// gradient before ReLU and pooling and that of the bias.
#include <omp.h>

#include <algorithm>

#include "backend/cpu/conv/amx/amx_direction.h"
#include "backend/cpu/conv/amx/amx_gradient.h"
#include "backend/cpu/conv/conv.h"
#include "backend/cpu/conv/tiles/direct_gradient.h"
#include "backend/cpu/conv/winograd/winograd_gradient.h"
#include "backend/cpu/device/planes.h"
#include "backend/cpu/device/values.h"
#include "backend/cpu/pointwise/elementwise_kernels.h"
#include "backend/workspace.h"

namespace ddp {
namespace {

// The activations from an element on; null stays null.
template <class Values>
Values later(Values from, std::int64_t elements) {
  if (from == nullptr) return from;
  const std::int64_t bytes = elements * static_cast<std::int64_t>(bytes_of(from.element()));
  using Bytes = std::conditional_t<std::is_same_v<Values, Activations>, std::byte, const std::byte>;
  return {static_cast<Bytes*>(from.data()) + bytes, from.element()};
}

// Value: of activations. Of Bf16, pairs are multiplied, and sums are fp32; tiles with AMX multiply floats as tf32 does, or more
// precisely.
template <class Value>
class LanesConv final : public Op {
 public:
  LanesConv(const ConvSpec& spec, const LanesConvTiles& tiles)
      : spec_(spec),
        kernels_(lanes::gradient_kernels()),
        shape_(forward_shape(spec)),
        threads_(omp_get_max_threads()),
        forward_(direction(ConvPass::forward, tiles.forward)) {
    if (spec.input_gradient) data_ = direction(ConvPass::data, tiles.data.value());
    weights_ = gradient(tiles.weights, tiles.data);
    const auto larger = [&](auto size) {
      const std::int64_t forward = (*forward_.*size)();
      return data_ == nullptr ? forward : std::max(forward, (*data_.*size)());
    };
    scratch_size_ = round_up(larger(&ConvDirection::scratch_elements), kLanes);
    const std::int64_t opened = spec.relu ? std::min(weights_->blocks_together(), sample_blocks(spec.batch)) : 0;
    Workspace layout;
    packed_ = layout.add<float>(larger(&ConvDirection::packed_elements));
    scratch_ = layout.add<float>(threads_ * scratch_size_);
    memory_ = layout.add<float>(weights_->memory_elements());
    dpre_ = layout.add<Value>(opened * dpre_block());
    plane_sums_ = layout.add<float>(spec.bias ? opened * spec.output_channels : 0);
    workspace_bytes_ = layout.bytes();
  }

  OpTraits traits() const override {
    const auto results = static_cast<std::size_t>(sample_blocks(spec_.batch) * spec_.output().elements());
    return {.saved_bytes = spec_.average_pool ? results * 4 * sizeof(std::uint16_t) : 0,
            .workspace_bytes = workspace_bytes_,
            .backward_reads_inputs = {0},
            .backward_reads_y = spec_.relu && !spec_.average_pool};
  }

  void forward(const ForwardArguments& a) override {
    forward_->pack(a.parameters[0], packed_.in(a.workspace));
    ConvBlocks blocks = blocks_of(a.active, a.parameters[0], a.workspace);
    if (spec_.bias) blocks.bias = a.parameters[1];
    if (spec_.average_pool) blocks.mask = static_cast<std::uint16_t*>(static_cast<void*>(a.saved));
    forward_->run(a.x(), a.y, blocks);
  }

  void backward(const BackwardArguments& a) override {
    const std::int64_t blocks = sample_blocks(a.active);
    if (blocks == 0) {
      std::fill_n(a.parameter_gradients[0], spec_.weights(), 0.0F);
      if (spec_.bias) std::fill_n(a.parameter_gradients[1], spec_.output_channels, 0.0F);
    }
    if (data_ != nullptr) data_->pack(a.parameters[0], packed_.in(a.workspace));
    const std::int64_t together = weights_->blocks_together();
    for (std::int64_t first = 0; first < blocks; first += together) {
      const std::int64_t count = std::min(together, blocks - first);
      backward_part(part_of(a, first, count), first == 0, first + count == blocks);
    }
    if (data_ != nullptr) {
      clear_rest(values<Value>(a.dx()), a.active, spec_.batch, spec_.input, Layout::lanes16);
    }
  }

 private:
  // The arguments for `count` blocks from `first` on, which are computed together.
  BackwardArguments part_of(const BackwardArguments& a, std::int64_t first, std::int64_t count) const {
    const std::int64_t x = first * kLanes * spec_.input.elements();
    const std::int64_t y = first * kLanes * spec_.output().elements();
    BackwardArguments part = a;
    part.inputs = {later(a.x(), x)};
    part.y = later(a.y, y);
    part.dy = later(a.dy, y);
    part.input_gradients = {later(a.dx(), x)};
    // Masks of pooling: four of 16 bits for 16 results.
    if (spec_.average_pool) part.saved += y / 4 * static_cast<std::int64_t>(sizeof(std::uint16_t));
    part.active = std::clamp<std::int64_t>(a.active - first * kLanes, 0, count * kLanes);
    return part;
  }

  void backward_part(const BackwardArguments& a, bool is_first, bool is_last) const {
    const ConvBlocks data = blocks_of(a.active, a.parameters[0], a.workspace);
    const GradientBlocks weights{data.count, is_first, is_last, a.parameter_gradients[0], memory_.in(a.workspace)};
    const Value* dpre = open_gradient(a, data.count);
    if (both_ != nullptr) {
      both_->add_both(a.x(), dpre, weights, a.dx(), data);
    } else {
      if (data_ != nullptr) data_->run(dpre, a.dx(), data);
      weights_->add(a.x(), dpre, weights);
    }
    if (spec_.bias) bias_gradient(a, dpre, data.count, is_first);
  }

  std::unique_ptr<ConvDirection> direction(ConvPass pass, const ConvTile& tile) const {
    switch (tile.method) {
      case ConvTile::Method::winograd:
        return std::make_unique<Winograd>(pass == ConvPass::forward ? winograd_forward(spec_) : winograd_data(spec_),
                                          tile, kElementOf<Value>, threads_);
      case ConvTile::Method::amx:
        return std::make_unique<AmxDirection<Value>>(spec_, pass, tile, threads_);
      case ConvTile::Method::direct:
        break;
    }
    return std::make_unique<DirectConv<Value>>(spec_, pass, tile, threads_);
  }

  std::unique_ptr<ConvGradient> gradient(const WeightTile& tile, const std::optional<ConvTile>& data) {
    if (is_winograd(tile)) return std::make_unique<WinogradGradient>(spec_, tile, kElementOf<Value>, threads_);
    if (is_amx(tile)) return std::make_unique<AmxWeightGradient<Value>>(spec_, tile, threads_);
    if constexpr (std::is_same_v<Value, float>) {
      // Both gradients together.
      const bool is_direct = data.has_value() && data->method == ConvTile::Method::direct;
      if (is_direct && data_ != nullptr && threads_ == 1 && of_single_pixels(spec_) && !reads_in_place(spec_)) {
        auto both = std::make_unique<DirectGradient<float>>(spec_, tile, threads_,
                                                            static_cast<const DirectConv<float>*>(data_.get()));
        both_ = both.get();
        return both;
      }
    }
    return std::make_unique<DirectGradient<Value>>(spec_, tile, threads_);
  }

  ConvBlocks blocks_of(std::int64_t active, const float* weights, std::byte* workspace) const {
    return {.count = sample_blocks(active),
            .weights = weights,
            .packed = packed_.in(workspace),
            .scratch = scratch_.in(workspace),
            .scratch_size = scratch_size_};
  }

  // The gradient before ReLU and pooling; dy itself if there is neither.
  const Value* open_gradient(const BackwardArguments& a, std::int64_t count) const {
    if (!spec_.relu) return values<Value>(a.dy);
    Value* dpre = dpre_.in(a.workspace);
    const std::int64_t planes = count * spec_.output_channels;
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t p = 0; p < planes; ++p) {
      Value* const to = dpre + p * kLanes * shape_.out_plane;
      open_plane(a, p, to);
      if (spec_.bias) plane_sums_.in(a.workspace)[p] = plane_sum(to);
    }
    return dpre;
  }

  // The same for one plane of the output.
  void open_plane(const BackwardArguments& a, std::int64_t plane, Value* to) const {
    const Shape out = spec_.output();
    const std::int64_t size = kLanes * out.height * out.width;
    const auto* dy = raw(values<Value>(a.dy) + plane * size);
    if (spec_.average_pool) {
      const auto* mask = static_cast<const std::uint16_t*>(static_cast<const void*>(a.saved));
      of_values<Value>(kernels_.unpool, kernels_.unpool_bf16)(dy, mask + plane * size / 4, raw(to),
                                                              static_cast<int>(out.height), static_cast<int>(out.width),
                                                              shape_.out_w);
      return;
    }
    const auto& elementwise = lanes::elementwise_kernels();
    of_values<Value>(elementwise.fp32, elementwise.bf16)
        .backward[static_cast<std::size_t>(Activation::relu)](size, raw(values<Value>(a.y) + plane * size), dy, raw(to),
                                                              nullptr);
  }

  float plane_sum(const Value* plane) const {
    return of_values<Value>(kernels_.sum, kernels_.sum_bf16)(raw(plane), shape_.out_plane);
  }

  void bias_gradient(const BackwardArguments& a, const Value* dpre, std::int64_t count, bool is_first) const {
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t o = 0; o < spec_.output_channels; ++o) {
      float total = is_first ? 0.0F : a.parameter_gradients[1][o];
      for (std::int64_t b = 0; b < count; ++b) {
        total += spec_.relu ? plane_sums_.in(a.workspace)[b * spec_.output_channels + o]
                            : plane_sum(dpre + b * dpre_block() + o * kLanes * shape_.out_plane);
      }
      a.parameter_gradients[1][o] = total;
    }
  }

  // The values of the gradient before ReLU and pooling of a block.
  std::int64_t dpre_block() const { return kLanes * spec_.convolved().elements(); }

  ConvSpec spec_;
  const lanes::GradientKernels& kernels_;
  lanes::ConvShape shape_;
  int threads_;
  std::unique_ptr<ConvDirection> forward_, data_;
  std::unique_ptr<ConvGradient> weights_;
  const DirectGradient<float>* both_ = nullptr;  // weights_, if it computes the data gradient too
  std::int64_t scratch_size_ = 0;
  Workspace::Part<float> packed_, scratch_, memory_;
  Workspace::Part<Value> dpre_;
  Workspace::Part<float> plane_sums_;  // of the opened gradients
  std::size_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Op> make_lanes_conv(const ConvSpec& spec, const LanesConvTiles& tiles) {
  return std::make_unique<LanesConv<float>>(spec, tiles);
}

std::unique_ptr<Op> make_lanes_bf16_conv(const ConvSpec& spec, const LanesConvTiles& tiles) {
  return std::make_unique<LanesConv<Bf16>>(spec, tiles);
}

}  // namespace ddp
