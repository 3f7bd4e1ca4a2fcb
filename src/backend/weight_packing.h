// Weights of convolutions in the order and the element type in which kernels read them.
//
//   const std::vector<WeightPacking> all = {{device_floats, workspace, {64, 3, 49}}};
//   backend.math().convert_weights(all, PackingDirection::pack);    // converts [64][3][49] of fp32 to [64][49][3] of activations
//   backend.math().convert_weights(all, PackingDirection::unpack);  // and a packed gradient back
//
// The weights of all operators are converted by few kernels: one for each operator would take longer to start than to run.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp {

// [outputs][channels][taps] in PyTorch's layout, [outputs][taps][channels] packed.
struct PackedShape {
  std::int64_t outputs = 0;
  std::int64_t channels = 0;
  std::int64_t taps = 0;

  std::int64_t elements() const { return outputs * channels * taps; }
};

enum class PackingDirection { pack, unpack };

struct WeightPacking {
  float* plain = nullptr;  // only read if it is packed
  std::byte* packed = nullptr;
  PackedShape shape;
};

}  // namespace ddp
