#include "backend/cpu/conv/amx/amx_directions.h"

#include <algorithm>

#include "backend/cpu/device/planes.h"
#include "backend/cpu/device/values.h"

namespace ddp {

template <class Value>
AmxDirections<Value>::AmxDirections(const ConvSpec& spec, const LanesConvTiles& tiles, int threads) : spec_(spec) {
  const typename AmxConv<Value>::Extent extent{spec.groups, threads};
  const lanes::ConvShape shape = forward_shape(spec);
  const lanes::AmxKernels& kernels = lanes::amx_kernels();
  if (is_amx(tiles.forward)) forward_.emplace(shape, kernels.forward[tiles.forward.index], epilogue_of(spec), extent);
  if (spec.input_gradient && is_amx(tiles.data)) {
    phases_ = data_phases(spec);
    for (const DataPhase& phase : phases_) {
      data_.emplace_back(phase.shape, kernels.forward[tiles.data->index], lanes::Epilogue::none, extent);
    }
  }
  if (is_amx(tiles.weights)) {
    weights_.emplace(shape, spec.groups, kernels.gradient[tiles.weights.index], threads);
  }
}

template <class Value>
std::int64_t AmxDirections<Value>::packed_elements() const {
  std::int64_t data = 0;
  for (const AmxConv<Value>& phase : data_) data += phase.packed_elements();
  return std::max(data, forward_ ? forward_->packed_elements() : 0);
}

template <class Value>
std::int64_t AmxDirections<Value>::scratch_elements() const {
  std::int64_t most = forward_ ? forward_->scratch_elements() : 0;
  for (const AmxConv<Value>& phase : data_) most = std::max(most, phase.scratch_elements());
  return most;
}

template <class Value>
void AmxDirections<Value>::pack_forward(const float* weights, float* packed) const {
  const std::int64_t window = spec_.window.elements();
  forward_->pack({.values = weights,
                  .group = group_parameters(),
                  .first = 0,
                  .out = window * (spec_.input.channels / spec_.groups),
                  .in = window,
                  .row = spec_.window.width,
                  .column = 1},
                 packed);
}

template <class Value>
void AmxDirections<Value>::forward(const ForwardArguments& a, const DirectionMemory& memory) const {
  auto* mask = static_cast<std::uint16_t*>(static_cast<void*>(a.saved));
  forward_->run(values<Value>(a.x), values<Value>(a.y),
                {.count = sample_blocks(a.active),
                 .x_size = x_block(),
                 .y_size = kLanes * spec_.output().elements(),
                 .packed = memory.packed,
                 .bias = spec_.bias ? a.parameters[1] : nullptr,
                 .mask = spec_.average_pool ? mask : nullptr,
                 .scratch = memory.scratch,
                 .scratch_size = memory.scratch_size});
}

// Rows and columns of a phase's weights are those of the window backwards.
template <class Value>
void AmxDirections<Value>::pack_data(const float* weights, float* packed) const {
  const std::int64_t window = spec_.window.elements();
  const std::int64_t column = spec_.window.stride.horizontal;
  const std::int64_t row = spec_.window.stride.vertical * spec_.window.width;
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    const DataPhase& phase = phases_[i];
    data_[i].pack({.values = weights,
                   .group = group_parameters(),
                   .first = phase.tap_row * spec_.window.width + phase.tap_column + (phase.shape.kernel_h - 1) * row +
                            (phase.shape.kernel_w - 1) * column,
                   .out = window,
                   .in = window * (spec_.input.channels / spec_.groups),
                   .row = -row,
                   .column = -column},
                  packed);
    packed += data_[i].packed_elements();
  }
}

template <class Value>
void AmxDirections<Value>::data_gradient(const Value* dpre, Value* dx, std::int64_t count,
                                         const DirectionMemory& memory) const {
  const float* packed = memory.packed;
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    data_[i].run(dpre, dx + kLanes * phases_[i].begin,
                 {.count = count,
                  .x_size = dpre_block(),
                  .y_size = x_block(),
                  .packed = packed,
                  .scratch = memory.scratch,
                  .scratch_size = memory.scratch_size});
    packed += data_[i].packed_elements();
  }
}

template <class Value>
void AmxDirections<Value>::add_weights(const Value* x, const Value* dpre, std::int64_t count, bool accumulate,
                                       float* dw,  // NOLINT(readability-non-const-parameter): add() writes it
                                       float* sums) const {
  weights_->add(x, dpre,
                {.count = count, .x_size = x_block(), .dy_size = dpre_block(), .accumulate = accumulate, .dw = dw},
                sums);
}

template class AmxDirections<Bf16>;
template class AmxDirections<float>;

}  // namespace ddp
