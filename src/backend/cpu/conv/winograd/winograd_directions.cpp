#include "backend/cpu/conv/winograd/winograd_directions.h"

#include <algorithm>
#include <type_traits>

#include "backend/cpu/device/planes.h"
#include "backend/cpu/device/values.h"

namespace ddp {

template <class Value>
WinogradDirections<Value>::WinogradDirections(const ConvSpec& spec, const LanesConvTiles& tiles, int threads)
    : spec_(spec) {
  constexpr Element kElement = std::is_same_v<Value, float> ? Element::fp32 : Element::bf16;
  const auto emplace = [&](std::optional<Winograd>& direction, const WinogradProblem& problem, const ConvTile& tile) {
    const WinogradForm form = winograd_form(tile.form, kElement);
    direction.emplace(problem, forward_tile(tile.index, form.pairs), form, threads);
  };
  if (is_winograd(tiles.forward)) emplace(forward_, winograd_forward(spec), tiles.forward);
  if (spec.input_gradient && is_winograd(tiles.data)) emplace(data_, winograd_data(spec), *tiles.data);
  if (is_winograd(tiles.weights)) {
    weights_.emplace(spec, outer_tile(tiles.weights.index), winograd_form(tiles.weights.form, kElement), threads);
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
