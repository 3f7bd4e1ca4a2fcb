#include "backend/cpu/lanes_winograd_directions.h"

#include <algorithm>
#include <type_traits>

#include "backend/cpu/planes.h"
#include "backend/cpu/values.h"

namespace ddp {

template <class Value>
WinogradDirections<Value>::WinogradDirections(const ConvSpec& spec, const LanesConvTiles& tiles, int threads)
    : spec_(spec) {
  constexpr Element kElement = std::is_same_v<Value, float> ? Element::fp32 : Element::bf16;
  if (is_winograd(tiles.forward)) {
    forward_.emplace(winograd_forward(spec), forward_tile(tiles.forward, kElement),
                     winograd_form(tiles.forward, kElement), threads);
  }
  if (spec.input_gradient && is_winograd(tiles.data)) {
    data_.emplace(winograd_data(spec), forward_tile(tiles.data, kElement), winograd_form(tiles.data, kElement),
                  threads);
  }
  if (is_winograd_weights(tiles.weights)) {
    weights_.emplace(spec, outer_tile(tiles.weights), winograd_weights_form(tiles.weights, kElement), threads);
  }
}

template <class Value>
std::int64_t WinogradDirections<Value>::packed_elements() const {
  return std::max(forward_ ? forward_->packed_elements() : 0, data_ ? data_->packed_elements() : 0);
}

template <class Value>
std::int64_t WinogradDirections<Value>::scratch_elements() const {
  return std::max(forward_ ? forward_->scratch_elements() : 0, data_ ? data_->scratch_elements() : 0);
}

template <class Value>
void WinogradDirections<Value>::forward(const ForwardArguments& a, const DirectionMemory& memory) const {
  forward_->run_blocks(values<Value>(a.x), values<Value>(a.y),
                       {.count = sample_blocks(a.active),
                        .weights = a.parameters[0],
                        .packed = memory.packed,
                        .bias = spec_.bias ? a.parameters[1] : nullptr,
                        .relu = spec_.relu,
                        .mask = static_cast<std::uint16_t*>(static_cast<void*>(a.saved)),
                        .scratch = memory.scratch,
                        .scratch_size = memory.scratch_size});
}

template <class Value>
void WinogradDirections<Value>::data_gradient(const float* weights, const Value* dpre, Value* dx, std::int64_t count,
                                              const DirectionMemory& memory) const {
  data_->run_blocks(dpre, dx,
                    {.count = count,
                     .weights = weights,
                     .packed = memory.packed,
                     .scratch = memory.scratch,
                     .scratch_size = memory.scratch_size});
}

template <class Value>
void WinogradDirections<Value>::add_weights(const Value* x, const Value* dpre, std::int64_t count, bool accumulate,
                                            float* dw, float* sums) const {
  weights_->add(x, dpre,
                {.count = count,
                 .x_size = kLanes * spec_.input.elements(),
                 .dy_size = kLanes * spec_.convolved().elements(),
                 .accumulate = accumulate},
                dw, sums);
}

template class WinogradDirections<Bf16>;
template class WinogradDirections<float>;

}  // namespace ddp
