#include "backend/cpu/conv/amx/amx_direction.h"

#include <algorithm>

#include "backend/cpu/device/values.h"

namespace ddp {

template <class Value>
AmxDirection<Value>::AmxDirection(const ConvSpec& spec, ConvPass pass, const ConvTile& tile, int threads) {
  const lanes::AmxForwardTile& kernel = lanes::amx_kernels().forward[tile.index];
  const std::int64_t input = kLanes * spec.input.elements();
  if (pass == ConvPass::forward) {
    const typename AmxConv<Value>::Extent extent{spec.groups, threads, input, kLanes * spec.output().elements()};
    const lanes::ConvShape shape = forward_shape(spec);
    parts_.push_back({{shape, kernel, epilogue_of(spec), extent}, forward_places(shape), 0});
    return;
  }
  const typename AmxConv<Value>::Extent extent{spec.groups, threads, kLanes * spec.convolved().elements(), input};
  for (const DataPhase& phase : data_phases(spec)) {
    parts_.push_back({{phase.shape, kernel, lanes::Epilogue::none, extent}, data_places(spec, phase), phase.begin});
  }
}

template <class Value>
std::int64_t AmxDirection<Value>::packed_elements() const {
  std::int64_t all = 0;
  for (const Part& part : parts_) all += part.conv.packed_elements();
  return all;
}

template <class Value>
std::int64_t AmxDirection<Value>::scratch_elements() const {
  std::int64_t most = 0;
  for (const Part& part : parts_) most = std::max(most, part.conv.scratch_elements());
  return most;
}

template <class Value>
void AmxDirection<Value>::pack(const float* weights, float* packed) const {
  for (const Part& part : parts_) {
    part.conv.pack(weights, part.weights, packed);
    packed += part.conv.packed_elements();
  }
}

template <class Value>
void AmxDirection<Value>::run(ConstActivations x, Activations y, const ConvBlocks& blocks) const {
  ConvBlocks of_part = blocks;
  for (const Part& part : parts_) {
    part.conv.run(values<Value>(x), values<Value>(y) + kLanes * part.begin, of_part);
    of_part.packed += part.conv.packed_elements();
  }
}

template class AmxDirection<Bf16>;
template class AmxDirection<float>;

}  // namespace ddp
