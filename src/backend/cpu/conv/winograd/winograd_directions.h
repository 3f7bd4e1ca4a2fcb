// The directions of a convolution in lanes16 that Winograd's algorithm computes, for the operators that have other kernels as
// well (conv/lanes_bf16_conv.cpp, conv/lanes_conv.cpp). Value: of activations, float or Bf16.
//
//   WinogradDirections<float> winograd(spec, tiles, threads);
//   winograd.pack_forward(weights, packed);
//   winograd.forward(arguments, {packed, scratch, scratch_size});
#pragma once

#include <optional>

#include "backend/cpu/conv/tiles/shapes.h"
#include "backend/cpu/conv/tiles/tile.h"
#include "backend/cpu/conv/winograd/winograd.h"
#include "backend/cpu/conv/winograd/winograd_gradient.h"

namespace ddp {

template <class Value>
class WinogradDirections {
 public:
  WinogradDirections(const ConvSpec& spec, const LanesConvTiles& tiles, int threads);

  bool has_forward() const { return forward_.has_value(); }
  bool has_data() const { return data_.has_value(); }
  bool has_weights() const { return weights_.has_value(); }

  // Sizes in floats: of the packed weights of the larger direction, of the scratch memory of a thread, and of the sums.
  std::int64_t packed_elements() const;
  std::int64_t scratch_elements() const;
  std::int64_t sums_elements() const { return weights_ ? weights_->floats() : 0; }

  // Blocks of 16 samples that are best computed together; 1 without a forward direction.
  std::int64_t forward_blocks() const { return forward_ ? forward_->blocks_together() : 1; }

  // `packed` is what forward() and data_gradient() get.
  void pack_forward(const float* weights, float* packed) const { forward_->prepare(weights, packed); }
  void forward(const ForwardArguments& a, const DirectionMemory& memory) const;
  void pack_data(const float* weights, float* packed) const { data_->prepare(weights, packed); }
  // Computes `count` blocks, whose gradient before ReLU and pooling is dpre, and dx the first value of the input's.
  void data_gradient(const float* weights, const Value* dpre, Value* dx, std::int64_t count,
                     const DirectionMemory& memory) const;
  // `dw` with the last blocks, otherwise null.
  void add_weights(const Value* x, const Value* dpre, std::int64_t count, bool accumulate, float* dw,
                   float* sums) const;

 private:
  ConvSpec spec_;
  std::optional<Winograd> forward_, data_;
  std::optional<WinogradGradient> weights_;
};

}  // namespace ddp
