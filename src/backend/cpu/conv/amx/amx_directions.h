// The directions of a convolution in lanes16 that tiles with AMX compute, for the operators that have other kernels as well
// (conv/lanes_bf16_conv.cpp, conv/lanes_conv.cpp). Value: Bf16, or float for tf32.
//
//   AmxDirections<Bf16> amx(spec, tiles, threads);
//   amx.pack_forward(weights, packed);
//   amx.forward(arguments, {packed, scratch, scratch_size});
#pragma once

#include <optional>
#include <vector>

#include "backend/cpu/conv/amx/amx_conv.h"
#include "backend/cpu/conv/amx/amx_gradient.h"
#include "backend/cpu/conv/tiles/shapes.h"
#include "backend/cpu/conv/tiles/tile.h"

namespace ddp {

template <class Value>
class AmxDirections {
 public:
  AmxDirections(const ConvSpec& spec, const LanesConvTiles& tiles, int threads);

  bool has_forward() const { return forward_.has_value(); }
  bool has_data() const { return !data_.empty(); }
  bool has_weights() const { return weights_.has_value(); }

  // Sizes in floats: of the packed weights of the larger direction, of the scratch memory of a thread, and of the sums.
  std::int64_t packed_elements() const;
  std::int64_t scratch_elements() const;
  std::int64_t sums_elements() const { return weights_ ? weights_->floats() : 0; }
  // The blocks of 16 samples whose weight gradients are added together.
  std::int64_t most_blocks() const { return weights_->most_blocks(); }

  // `packed` is what forward() and data_gradient() get.
  void pack_forward(const float* weights, float* packed) const;
  void forward(const ForwardArguments& a, const DirectionMemory& memory) const;
  void pack_data(const float* weights, float* packed) const;
  // Computes `count` blocks, whose gradient before ReLU and pooling is dpre, and dx the first value of the input's.
  void data_gradient(const Value* dpre, Value* dx, std::int64_t count, const DirectionMemory& memory) const;
  // `dw`: of the last blocks, otherwise null.
  void add_weights(const Value* x, const Value* dpre, std::int64_t count, bool accumulate, float* dw,
                   float* sums) const;

 private:
  std::int64_t group_parameters() const { return spec_.weights() / spec_.groups; }
  std::int64_t x_block() const { return kLanes * spec_.input.elements(); }
  std::int64_t dpre_block() const { return kLanes * spec_.convolved().elements(); }

  ConvSpec spec_;
  std::vector<DataPhase> phases_;
  std::optional<AmxConv<Value>> forward_;
  std::vector<AmxConv<Value>> data_;  // of the phases
  std::optional<AmxWeightGradient<Value>> weights_;
};

}  // namespace ddp
