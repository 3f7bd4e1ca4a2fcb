// Winograd's convolution in lanes16: of windows of 3x3 in tiles of 2x2 or 4x4 results, 16 products for 4 results or 36 for
// 16, instead of 36 or 144; with stride 2 in tiles of 2x2 results, 25 products instead of 36; of windows of 5x5 in tiles of
// 2x2 results, 36 products instead of 100. Windows of values and the weights are transformed, multiplied for each of the 16,
// 25 or 36 frequencies as a convolution of single pixels, and transformed back. Activations are floats or bf16 numbers;
// products are of floats, or with size 2 of pairs of bf16 numbers.
//
//   Winograd winograd(winograd_forward(spec), tiles.forward, Element::fp32, threads);     // see direction.h
#pragma once

#include "backend/cpu/conv/tiles/direction.h"
#include "backend/cpu/conv/tiles/tile.h"
#include "backend/cpu/conv/winograd/winograd_kernels.h"
#include "backend/op.h"

namespace ddp {

struct WinogradForm {
  int index;  // in WinogradForms
  int size;   // of a tile of results
  int window;
  int stride;
  bool pairs;  // products of pairs of bf16 numbers

  // The values of a dimension that a tile is computed from.
  constexpr int points() const { return (size - 1) * stride + window; }
  constexpr int frequencies() const { return points() * points(); }
};
// One of WinogradForms, by its index. In bf16 only some multiply pairs.
WinogradForm winograd_form(int index, Element element);

// One direction of a convolution. A data gradient is computed as a convolution of the gradient with the weights flipped;
// or, with stride 2, and for windows of 5x5 and images larger than the results, so that those have fewer tiles, by the transposed
// algorithm: each tile of the gradient is spread over the window that it was computed from.
struct WinogradProblem {
  lanes::ConvShape shape;  // of one group, as shapes.h makes it; if it spreads, of the convolution forward
  bool spreads;
  bool relu;
  bool pooled;  // after ReLU, 2x2 results
  // Where the weights of output channel o and input channel c of what is computed are: o * out + c * in floats from the first
  // of a group.
  std::int64_t out, in;
  bool flipped;
  std::int64_t groups;
  std::int64_t blocks;  // the most, of 16 samples, that are computed with the same weights
};
WinogradProblem winograd_forward(const ConvSpec& spec);
WinogradProblem winograd_data(const ConvSpec& spec);

// How many tiles of results are transformed together: rows of them, which divide all rows, or all of some blocks of 16
// samples. A band has no more than the `blocks` that there are, unless those have fewer than the `least_tiles` that are
// multiplied at a time.
struct WinogradBand {
  int rows, columns, blocks;
  int bands;  // in a block

  int tiles() const { return rows * columns * blocks; }
};
inline constexpr int kWinogradBlocks = 4;  // the most of a band
WinogradBand winograd_band(const lanes::ConvShape& shape, WinogradForm form, std::int64_t blocks, int least_tiles);
// Between the values of frequencies, so that they are not in the same set of a cache.
inline constexpr std::int64_t kWinogradApart = 80;
lanes::WinogradPlane winograd_plane(const lanes::ConvShape& shape, int size);

class Winograd final : public ConvDirection {
 public:
  // On activations of `element`; the tile computes the products.
  Winograd(const WinogradProblem& problem, const ConvTile& tile, Element element, int threads);

  // Whether there is a form for it, of tiles of that size.
  static bool supports(const lanes::ConvShape& shape, WinogradForm form);

  std::int64_t packed_elements() const override;
  std::int64_t scratch_elements() const override;
  // Transforms the weights, unless that is done part by part where they are used.
  void pack(const float* weights, float* packed) const override;
  void run(ConstActivations x, Activations y, const ConvBlocks& blocks) const override;

 private:
  // A band of a group: of the blocks [first, first + count), from tile row `row` on.
  struct Part {
    std::int64_t group, first, count;
    int row;
  };
  // Channels of the results, of a group.
  struct Channels {
    int first, count;
  };
  template <class Value>
  void run_blocks(const Value* x, Value* y, const ConvBlocks& blocks) const;
  template <class Value>
  void run_band(const Value* x, Value* y, const ConvBlocks& blocks, const Part& part) const;
  template <class Value>
  void run_at_once(const Value* x, Value* y, const ConvBlocks& blocks) const;
  template <class Value>
  void transform_channel(const Value* x, const Part& part, int channel, float* transformed) const;
  void multiply(const float* transformed, const float* packed, int channels, float* products) const;
  template <class Value>
  void write_results(const float* products, Value* y, const ConvBlocks& blocks, const Part& part,
                     const Channels& channels) const;
  template <class Value>
  void spread_results(const float* products, Value* y, float* image, const Part& part) const;
  void pack_channels(const float* weights, std::int64_t group, const Channels& channels, float* packed) const;

  int stored_channels() const { return form_.pairs ? (sources_ + 1) / 2 : sources_; }
  // Whether one band has all blocks. Then weights are transformed for some channels at a time, in the cache, since each is
  // used only once; there may be more of them than a cache has room for.
  bool at_once() const { return !problem_.spreads && band_.bands == 1 && problem_.blocks <= band_.blocks; }
  // As many output channels as fill whole vectors and tiles.
  int channels_together() const;
  // Those whose packed weights are kept: all, or so many.
  int packed_channels() const;
  std::int64_t packed_frequency() const;
  std::int64_t input_frequency() const;
  std::int64_t output_frequency(int channels) const;
  std::int64_t image_elements() const;
  // Values of a block of all groups.
  std::int64_t x_block() const { return problem_.groups * sources_ * x_plane_; }
  std::int64_t y_block() const { return problem_.groups * results_ * y_plane_; }

  WinogradProblem problem_;
  int sources_, results_;           // channels of a group that are read and computed
  std::int64_t x_plane_, y_plane_;  // their values
  WinogradForm form_;
  lanes::ForwardTile tile_;
  lanes::WinogradMultiply products_;
  int threads_;
  lanes::WinogradPlane plane_;
  WinogradBand band_;
};

}  // namespace ddp
