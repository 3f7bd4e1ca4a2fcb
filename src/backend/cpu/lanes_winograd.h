// Winograd's convolution F(2x2, 3x3) in lanes16, of floats or of pairs of bf16 numbers: 16 products for 4 results of a
// 3x3 window with stride 1, instead of 36. Windows of 4x4 values and the weights are transformed, multiplied for each of
// 16 frequencies as a convolution of single pixels, and transformed back.
//
//   Winograd winograd(forward_shape(spec), tile, /*pairs=*/false);
//   winograd.pack(weights, strides, packed);                            // winograd.packed_elements() floats
//   for (int band = 0; band < winograd.bands(); ++band) winograd.run(x, packed, bias, relu, y, scratch, band);
#pragma once

#include "backend/cpu/lanes_kernels.h"

namespace ddp {

class Winograd {
 public:
  Winograd() = default;
  // `tile` computes the products. `shape`: of one group, as lanes_shapes.h makes it.
  Winograd(const lanes::ConvShape& shape, const lanes::ForwardTile& tile, bool pairs);

  static bool supports(const lanes::ConvShape& shape);
  // The columns of results of one product; no tile may have more.
  static int columns(const lanes::ConvShape& shape);

  // Sizes in floats: of packed weights, and of the scratch memory of a thread.
  std::int64_t packed_elements() const;
  std::int64_t scratch_elements() const;
  int bands() const { return tile_rows() / rows_; }

  // Where weights are: of output channel o and input channel c, o * out + c * in floats from the first; flipped for a
  // data gradient.
  struct Order {
    std::int64_t out, in;
    bool flipped;
  };
  void pack(const float* weights, const Order& order, float* packed) const;
  // The results of one band of rows of a block of 16 samples; `x` and `y` are whole planes.
  template <class Value>
  void run(const Value* x, const float* packed, const float* bias, bool relu, Value* y, float* scratch, int band) const;

  // Blocks of samples, each of some groups of channels.
  struct Blocks {
    std::int64_t count, groups;
    std::int64_t x_size, y_size;  // values of a block in x and in y
    const float* bias = nullptr;  // of all groups
    bool relu = false;
    float* scratch = nullptr;  // of the first thread; the others follow at distances of scratch_size floats
    std::int64_t scratch_size = 0;
    int threads = 1;
  };
  // All bands of these blocks, in parallel; the packed weights of the groups follow one another.
  template <class Value>
  void run_blocks(const Value* x, const float* packed, Value* y, const Blocks& blocks) const;

 private:
  int tile_rows() const { return (shape_.out_h + 1) / 2; }
  int tiles() const { return rows_ * plane_.tile_columns; }
  int stored_channels() const { return pairs_ ? (shape_.in_channels + 1) / 2 : shape_.in_channels; }
  std::int64_t packed_frequency() const;
  std::int64_t input_frequency() const;
  std::int64_t output_frequency() const;

  lanes::ConvShape shape_{};
  lanes::ForwardTile tile_{};
  lanes::WinogradPlane plane_{};
  bool pairs_ = false;
  int rows_ = 1;  // of tiles in a band
};

}  // namespace ddp
