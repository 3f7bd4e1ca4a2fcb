// Winograd's convolution in lanes16 for windows of 3x3 with stride 1, in tiles of 2x2 or 4x4 results: 16 products for 4
// results or 36 for 16, instead of 36 or 144. Windows of values and the weights are transformed, multiplied for each of
// the 16 or 36 frequencies as a convolution of single pixels, and transformed back. Activations are floats or bf16
// numbers; products are of floats, or with size 2 of pairs of bf16 numbers.
//
//   Winograd winograd(forward_shape(spec), tile, {.size = 4}, {.blocks = 4, .groups = 1, .threads = 2});
//   const Winograd::Weights weights{values, order, group_size, packed};      // winograd.packed_elements() floats
//   winograd.prepare(weights);
//   winograd.run_blocks(x, weights, y, {.count = blocks_of(a.active), ...});
#pragma once

#include "backend/cpu/lanes_kernels.h"

namespace ddp {

struct WinogradForm {
  int size = 2;        // of a tile of results
  bool pairs = false;  // products of pairs of bf16 numbers

  constexpr int frequencies() const { return (size + 2) * (size + 2); }
};

// How many tiles of results are transformed together: rows of them, which divide all rows, or all of some blocks of 16
// samples.
struct WinogradBand {
  int rows, columns, blocks;
  int bands;  // in a block

  int tiles() const { return rows * columns * blocks; }
};
WinogradBand winograd_band(const lanes::ConvShape& shape, int size);
// Between the values of frequencies, so that they are not in the same set of a cache.
inline constexpr std::int64_t kWinogradApart = 80;
lanes::WinogradPlane winograd_plane(const lanes::ConvShape& shape, int size);

class Winograd {
 public:
  // The most blocks of 16 samples that are computed with the same weights.
  struct Extent {
    std::int64_t blocks, groups;
    int threads;
  };
  // `tile` computes the products. `shape`: of one group, as lanes_shapes.h makes it.
  Winograd(const lanes::ConvShape& shape, const lanes::ForwardTile& tile, WinogradForm form, const Extent& extent);

  static bool supports(const lanes::ConvShape& shape);

  // Sizes in floats: of packed weights, and of the scratch memory of a thread.
  std::int64_t packed_elements() const;
  std::int64_t scratch_elements() const;

  // Where weights are: of output channel o and input channel c, o * out + c * in floats from the first; flipped for a
  // data gradient.
  struct Order {
    std::int64_t out, in;
    bool flipped;
  };
  struct Weights {
    const float* values;
    Order order;
    std::int64_t group;  // floats between groups
    float* packed;       // packed_elements()
  };
  // Before run_blocks(): transforms the weights, unless that is done part by part where they are used.
  void prepare(const Weights& weights) const;

  // Blocks of samples, each of some groups of channels.
  struct Blocks {
    std::int64_t count;
    std::int64_t x_size, y_size;  // values of a block in x and in y
    const float* bias = nullptr;  // of all groups
    bool relu = false;
    float* scratch = nullptr;  // of the first thread; the others follow at distances of scratch_size floats
    std::int64_t scratch_size = 0;
  };
  template <class Value>
  void run_blocks(const Value* x, const Weights& weights, Value* y, const Blocks& blocks) const;

 private:
  // A band of a group: of the blocks [first, first + count), from tile row `row` on.
  struct Part {
    std::int64_t group, first, count;
    int row;
  };
  // Output channels of a group.
  struct Channels {
    int first, count;
  };
  template <class Value>
  void run_band(const Value* x, const Weights& weights, Value* y, const Blocks& blocks, const Part& part) const;
  template <class Value>
  void run_at_once(const Value* x, const Weights& weights, Value* y, const Blocks& blocks) const;
  template <class Value>
  void transform_channel(const Value* x, const Blocks& blocks, const Part& part, int channel, float* transformed) const;
  void multiply(const float* transformed, const float* packed, int channels, float* products) const;
  template <class Value>
  void write_results(const float* products, Value* y, const Blocks& blocks, const Part& part,
                     const Channels& channels) const;
  void pack(const Weights& weights, std::int64_t group, const Channels& channels, float* packed) const;
  void pack_lanes(const float* weights, const Order& order, int count, int stored, float* packed,
                  std::int64_t frequency) const;

  int stored_channels() const { return form_.pairs ? (shape_.in_channels + 1) / 2 : shape_.in_channels; }
  // Whether one band has all blocks. Then weights are transformed for some channels at a time, in the cache, since each is
  // used only once; there may be more of them than a cache has room for.
  bool at_once() const { return band_.bands == 1 && extent_.blocks <= band_.blocks; }
  // As many output channels as fill whole vectors and tiles.
  int channels_together() const;
  // Those whose packed weights are kept: all, or so many.
  int packed_channels() const;
  std::int64_t packed_frequency() const;
  std::int64_t input_frequency() const;
  std::int64_t output_frequency(int channels) const;

  lanes::ConvShape shape_;
  lanes::ForwardTile tile_;
  WinogradForm form_;
  Extent extent_;
  lanes::WinogradPlane plane_;
  WinogradBand band_;
};

}  // namespace ddp
