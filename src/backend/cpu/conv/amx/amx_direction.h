// A convolution in lanes16, or its data gradient, by tiles with AMX. Value: of activations; Bf16, or float for tf32.
//
//   AmxDirection<Bf16> forward(spec, ConvPass::forward, tiles.forward, threads);     // see direction.h
#pragma once

#include <vector>

#include "backend/cpu/conv/amx/amx_conv.h"
#include "backend/cpu/conv/tiles/shapes.h"
#include "backend/cpu/conv/tiles/tile.h"

namespace ddp {

template <class Value>
class AmxDirection final : public ConvDirection {
 public:
  AmxDirection(const ConvSpec& spec, ConvPass pass, const ConvTile& tile, int threads);

  std::int64_t packed_elements() const override;
  std::int64_t scratch_elements() const override;
  void pack(const float* weights, float* packed) const override;
  void run(ConstActivations x, Activations y, const ConvBlocks& blocks) const override;

 private:
  // The convolution forward, or a phase of the data gradient.
  struct Part {
    AmxConv<Value> conv;
    WeightPlaces weights;
    std::int64_t begin;  // the vector of the first result in a plane
  };

  std::vector<Part> parts_;
};

}  // namespace ddp
