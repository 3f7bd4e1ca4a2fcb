// Convolutions in lanes16 with AMX, forward or data gradient; the weight gradient is in amx_gradient.h. Images are copied
// so that the values of a row of the window lie together and fill whole tiles (amx_image.h). Activations are bf16 numbers,
// to which weights are rounded; or floats for tf32: x = h + l of two bf16 numbers, and products h h' + l h' + h l', which are
// exact up to 2^-16 of their size.
//
//   AmxConv<Bf16> conv(forward_shape(spec), amx_tile, Epilogue::relu, {.groups = 1, .threads = 2, ...});
//   conv.pack(weights, forward_places(shape), packed);   // conv.packed_elements() floats
//   conv.run(x, y, {.count = blocks, .packed = packed, ...});
#pragma once

#include "backend/cpu/conv/amx/amx_image.h"
#include "backend/cpu/conv/amx/amx_kernels.h"
#include "backend/cpu/conv/amx/amx_weights.h"
#include "backend/cpu/conv/tiles/direction.h"

namespace ddp {

template <class Value>
class AmxConv {
 public:
  struct Extent {
    std::int64_t groups;
    int threads;
    std::int64_t x_size, y_size;  // values of a block of 16 samples in x and in y
  };
  // `shape`: of one group, as shapes.h makes it; with Epilogue::relu_pool y is pooled.
  AmxConv(const lanes::ConvShape& shape, const lanes::AmxForwardTile& tile, lanes::Epilogue last, const Extent& extent);

  // Sizes in floats: of the packed weights of all groups, and of the scratch memory of a thread.
  std::int64_t packed_elements() const { return extent_.groups * weights_.group_elements(); }
  std::int64_t scratch_elements() const;

  void pack(const float* weights, const WeightPlaces& places, float* packed) const {
    weights_.pack(weights, places, extent_.groups, extent_.threads, packed);
  }
  void run(const Value* x, Value* y, const ConvBlocks& blocks) const;

 private:
  // Rows [begin, end) of results of a group, of some blocks from `block` on.
  struct Part {
    std::int64_t group, block, count;
    int begin, end;
  };
  void run_part(const Value* x, Value* y, const ConvBlocks& blocks, const Part& part, float* images) const;
  void copy_image(const Value* x, const Part& part, float* image) const;
  // The task of the output channels from `channel` on, without their number, y and masks.
  lanes::AmxForward kernel_task(const ConvBlocks& blocks, const Part& part, int channel) const;

  bool has_taps() const { return shape_.kernel_h > 0 && shape_.kernel_w > 0; }
  std::int64_t position() const { return kLanes * weights_.vectors(); }
  std::int64_t image_elements(int results) const;
  int band_rows() const;
  std::int64_t blocks_at_once() const;

  lanes::ConvShape shape_;
  AmxImage image_;
  lanes::AmxForwardTile tile_;
  AmxWeights<Value> weights_;
  lanes::Epilogue last_;
  Extent extent_;
};

}  // namespace ddp
