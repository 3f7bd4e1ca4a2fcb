// A direction of a convolution in lanes16 as a tile computes it: direct tiles (direct_conv.h, direct_gradient.h), Winograd's
// algorithm and AMX implement these interfaces. The operator (lanes_conv.cpp) takes the one that the tile's method names.
//
//   forward->pack(weights, packed);                      // forward->packed_elements() floats
//   forward->run(x, y, {.count = blocks, .weights = weights, .packed = packed, .scratch = scratch, .scratch_size = size});
//   gradient->add(x, dpre, {.count = blocks, .is_first = true, .is_last = true, .dw = dw, .memory = memory});
#pragma once

#include "backend/activations.h"

namespace ddp {

// The data pass computes the gradient of the input from that of the output before ReLU and pooling.
enum class ConvPass { forward, data };

// Blocks of 16 samples, each of all groups of channels.
struct ConvBlocks {
  std::int64_t count;
  const float* weights;
  float* packed;                  // what pack() wrote
  const float* bias = nullptr;    // of all groups
  std::uint16_t* mask = nullptr;  // if results are pooled: as of lanes::ConvForward, four for 16 results
  float* scratch = nullptr;       // of the first thread; the others follow at distances of scratch_size floats
  std::int64_t scratch_size = 0;
};

class ConvDirection {
 public:
  ConvDirection() = default;
  ConvDirection(const ConvDirection&) = delete;
  ConvDirection& operator=(const ConvDirection&) = delete;
  virtual ~ConvDirection() = default;

  // Sizes in floats: of the packed weights, and of the scratch memory of a thread.
  virtual std::int64_t packed_elements() const = 0;
  virtual std::int64_t scratch_elements() const = 0;
  virtual void pack(const float* weights, float* packed) const = 0;
  virtual void run(ConstActivations x, Activations y, const ConvBlocks& blocks) const = 0;
};

// Blocks whose contribution to the weight gradient is added.
struct GradientBlocks {
  std::int64_t count;
  bool is_first, is_last;
  float* dw;      // [groups][out][in][kernel_h][kernel_w], complete after the last blocks
  float* memory;  // memory_elements() floats, to be left as they are from the first blocks to the last
};

class ConvGradient {
 public:
  ConvGradient() = default;
  ConvGradient(const ConvGradient&) = delete;
  ConvGradient& operator=(const ConvGradient&) = delete;
  virtual ~ConvGradient() = default;

  virtual std::int64_t memory_elements() const = 0;
  // The blocks that are added together, which determines the order of additions; only the last ones may be fewer.
  virtual std::int64_t blocks_together() const = 0;
  // `dpre`: the gradient of the output before ReLU and pooling.
  virtual void add(ConstActivations x, ConstActivations dpre, const GradientBlocks& blocks) const = 0;
};

}  // namespace ddp
