// Convolutions in lanes16 with AMX: forward or data gradient, and the weight gradient. Images are copied so that the values of a
// row of the window lie together and fill whole tiles (amx_kernels.h). Activations are bf16 numbers, to which weights are rounded;
// or floats for tf32: x = h + l of two bf16 numbers, and products h h' + l h' + h l', which are exact up to 2^-16 of their size.
//
//   AmxConv<Bf16> conv(forward_shape(spec), amx_tile, Epilogue::relu, {.groups = 1, .threads = 2});
//   conv.pack(weights, packed);                          // conv.packed_elements() floats
//   conv.run(x, y, {.count = blocks, .packed = packed, ...});
//
//   AmxWeightGradient<Bf16> gradient(forward_shape(spec), groups, amx_gradient_tile, threads);
//   gradient.add(x, dy, {.count = gradient.most_blocks(), ...}, memory);     // gradient.floats() floats
//   gradient.finish(dw, memory);
#pragma once

#include "backend/cpu/amx_kernels.h"
#include "backend/tensor.h"

namespace ddp {

// The image that the windows of a band of results read, with padding, at least the positions from that of the first window on.
// Rows or columns that no window reads, because it is 1 high or wide, are left out.
struct AmxImage {
  explicit AmxImage(const lanes::ConvShape& shape);

  int rows(int results) const { return (results - 1) * row_stride + kernel_h; }
  // Of the image of a whole plane, the rows and columns that are no padding: [begin, end) for the results from `first` on.
  struct Range {
    int begin, end;
  };
  Range inner_rows(int first, int results) const;
  Range inner_columns() const;
  // The row of the plane that is row `row` of the image for the results from `first` on, and likewise the column.
  int plane_row(int first, int row) const { return (first * row_stride + row) * row_gap - pad_top; }
  int plane_column(int column) const { return column * column_gap - pad_left; }

  int in_h, in_w, pad_top, pad_left, kernel_h;
  int row_gap, column_gap;        // rows and columns of the plane between those of the image
  int row_stride, column_stride;  // between windows, in the image
  int columns;
};

template <class Value>
class AmxConv {
 public:
  struct Extent {
    std::int64_t groups;
    int threads;
  };
  // `shape`: of one group, as lanes_shapes.h makes it; with Epilogue::relu_pool y is pooled.
  AmxConv(const lanes::ConvShape& shape, const lanes::AmxForwardTile& tile, lanes::Epilogue last, const Extent& extent);

  // Sizes in floats: of the packed weights of all groups, and of the scratch memory of a thread.
  std::int64_t packed_elements() const;
  std::int64_t scratch_elements() const;

  // Where weights are: that of output channel o, input channel c, row r and column s of the window is at
  // first + o * out + c * in + r * row + s * column.
  struct Weights {
    const float* values;
    std::int64_t group;  // values between groups
    std::int64_t first, out, in, row, column;
  };
  void pack(const Weights& weights, float* packed) const;

  // Blocks of 16 samples.
  struct Blocks {
    std::int64_t count;
    std::int64_t x_size, y_size;  // values of a block in x and in y
    const float* packed;
    const float* bias = nullptr;    // of all groups
    std::uint16_t* mask = nullptr;  // if pooled, as of lanes::ConvForward, four for 16 values of y
    float* scratch = nullptr;       // of the first thread; the others follow at distances of scratch_size floats
    std::int64_t scratch_size = 0;
  };
  void run(const Value* x, Value* y, const Blocks& blocks) const;

 private:
  // Rows [begin, end) of results of a group, and their masks.
  struct Part {
    std::int64_t group;
    int begin, end;
    std::uint16_t* mask;
  };
  void run_band(const Value* x, Value* y, const Blocks& blocks, const Part& part, float* image) const;
  void pack_step(const Weights& weights, const float* row, int step, int channel, float* to) const;
  void copy_image(const Value* x, const Part& part, float* image) const;

  bool has_taps() const { return shape_.kernel_h > 0 && shape_.kernel_w > 0; }
  int pairs() const { return (shape_.in_channels + 1) / 2; }
  // Of a position: for each product of parts all pairs.
  int vectors() const;
  int steps() const;
  int channel_tiles() const { return (shape_.out_channels + tile_.channels - 1) / tile_.channels; }
  std::int64_t packed_group() const;
  std::int64_t image_elements(int results) const;
  int band_rows() const;

  lanes::ConvShape shape_;
  AmxImage image_;
  lanes::AmxForwardTile tile_;
  lanes::Epilogue last_;
  Extent extent_;
};

template <class Value>
class AmxWeightGradient {
 public:
  AmxWeightGradient(const lanes::ConvShape& shape, std::int64_t groups, const lanes::AmxGradientTile& tile,
                    int threads);

  // The size of the memory below, and the most blocks of 16 samples to add at once, an even number.
  std::int64_t floats() const;
  std::int64_t most_blocks() const { return 2 * std::int64_t{most_pairs_}; }

  // Blocks of samples; x and dy are their first values, with these numbers of values between blocks.
  struct Blocks {
    std::int64_t count;
    std::int64_t x_size, dy_size;
    bool accumulate;  // to the sums in memory
  };
  void add(const Value* x, const Value* dy, const Blocks& blocks, float* memory) const;
  // [groups][out][in][kernel_h][kernel_w] from the sums.
  void finish(float* dw, const float* memory) const;

 private:
  // Rows [begin, end) of results of a group.
  struct Part {
    const Value* x;
    const Value* dy;
    int begin, end;
  };
  void copy_image(const Part& part, const Blocks& blocks, float* memory) const;
  void clear(float* row, int begin, int end) const;
  void copy_row(const Value* first, const Value* second, const AmxImage::Range& columns, float* row) const;
  void copy_gradient(const Part& part, const Blocks& blocks, float* memory) const;
  void multiply(std::int64_t group, const Part& part, const Blocks& blocks, bool accumulate, float* memory) const;

  // Tiles of taps of a row of the window and of output channels, whole tiles of the kernel.
  int tap_tiles() const;
  int channel_tiles() const;
  std::int64_t sums_group() const;
  // Of a pair of blocks, and of all.
  std::int64_t image_pair(int results) const;
  std::int64_t gradient_pair(int results) const;
  std::int64_t images() const { return most_pairs_ * image_pair(piece_rows_); }
  std::int64_t gradients() const { return most_pairs_ * gradient_pair(piece_rows_); }

  lanes::ConvShape shape_;
  AmxImage image_;
  std::int64_t groups_;
  lanes::AmxGradientTile tile_;
  int threads_;
  int piece_rows_ = 1;
  int most_pairs_ = 1;
};

}  // namespace ddp
