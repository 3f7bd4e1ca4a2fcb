// How parameters begin.
//
//   initialize(graph, Initializer{.kind = Initializer::Kind::kaiming}, seed, flat);
#pragma once

#include <cstdint>
#include <span>

#include "model/graph.h"

namespace ddp {

struct Initializer {
  enum class Kind {
    pytorch,  // weights and biases uniform in +-1/sqrt(fan_in): the default of PyTorch's Conv2d and Linear
    normal,   // weights N(0, deviation^2), biases 0
    xavier,   // weights uniform in +-sqrt(6/(fan_in+fan_out)), biases 0 (Glorot and Bengio, 2010)
    kaiming,  // weights N(0, 2/fan_in), biases 0 (He et al., 2015)
  };
  Kind kind = Kind::pytorch;
  float deviation = 0.01F;
};

// Fills the flat buffer of all parameters; each tensor is a function of (seed, its place in the model) alone.
void initialize(const Graph& graph, const Initializer& initializer, std::uint64_t seed, std::span<float> flat);

}  // namespace ddp
