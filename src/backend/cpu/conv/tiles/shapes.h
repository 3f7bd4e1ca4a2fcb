// The shapes of convolutions in the lanes16 layout as passed to kernels: one group of channels at a time, forward and
// data gradient.
//
//   for (const DataPhase& phase : data_phases(spec)) kernel(phase.shape, dpre, packed, nullptr, dx + 16 * phase.begin,
//   ...);
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "backend/cpu/conv/tiles/conv_kernels.h"
#include "backend/op.h"

namespace ddp {

// With a border of zero columns as wide as the padding.
lanes::ConvShape forward_shape(const ConvSpec& spec);

// The data gradient is a convolution of the output's gradient with the weights flipped and transposed. With stride s,
// pixels that are s apart use the same taps, so it splits into s x s convolutions of stride 1, each with a subset of
// the taps (if empty, the gradient is zero) and results s apart. Their tiles have one row, so that only columns need a
// border.
struct DataPhase {
  lanes::ConvShape shape;
  int tap_row, tap_column;  // its first taps; the others follow `stride` apart
  std::int64_t begin;       // the vector of the first pixel in a plane of the input's gradient
};
// All have the same border. Phases without pixels are omitted.
std::vector<DataPhase> data_phases(const ConvSpec& spec);

// The size in floats of the packed weights of one group.
std::int64_t packed_weights(const lanes::ConvShape& shape, int tile_channels);
// Where the weights of a group are: that of output channel o, input channel c, row r and column s of the window at
// first + o * out + c * in + r * row + s * column; those of the next group `group` further on.
struct WeightPlaces {
  std::int64_t group, first, out, in, row, column;
};
WeightPlaces forward_places(const lanes::ConvShape& shape);
// The rows and columns of a phase of the data gradient are those of the window backwards.
WeightPlaces data_places(const ConvSpec& spec, const DataPhase& phase);

// The weights of one group, from [out][in][h][w] to [out/tile][in][h][w][tile] with zeros beyond the last channel; of weights in
// bf16 with those of two input channels in each float.
void pack_forward(const lanes::ConvShape& shape, const float* w, int tile, float* packed);
void pack_forward(const lanes::ConvShape& shape, const Bf16* w, int tile, float* packed);
// The same for a phase of the data gradient, from the forward convolution's weights.
void pack_data(const ConvSpec& spec, const DataPhase& phase, const float* w, int tile, float* packed);
void pack_data(const ConvSpec& spec, const DataPhase& phase, const Bf16* w, int tile, float* packed);

// The shape as the kernels of convolutions and data gradients take it: of bf16 numbers with pairs of input channels.
template <class Value>
lanes::ConvShape kernel_shape(lanes::ConvShape shape) {
  if constexpr (std::is_same_v<Value, Bf16>) shape.in_channels = (shape.in_channels + 1) / 2;
  return shape;
}

// A convolution of single pixels, in place of each of which there is one result; and whether kernels read its planes of floats as
// they are.
bool of_single_pixels(const ConvSpec& spec);
bool reads_in_place(const ConvSpec& spec);
// The same convolution with the image in other rows, if it is of single pixels, so that tiles do not end with short rows.
ConvSpec with_long_rows(const ConvSpec& spec);

// The rows of an image that a band of a convolution's output rows reads, copied with zero padding to a small separate
// image, so that data that kernels read repeatedly is contiguous in the cache.
struct Band {
  lanes::ConvShape shape;  // of the band's rows only
  int first_row;           // of the image; may be in the padding
  int step;                // between the rows and between the columns that are copied
};
// The band for the output rows [begin, end). Kernels of single rows skip rows of padding, others read zeros there.
Band band_of(const lanes::ConvShape& whole, int begin, int end, bool single_rows);
// The size of its image in values.
std::int64_t band_elements(const Band& band);
// All phases of a data gradient as one shape, whose bands have the rows that they read, so that one copy serves all; and a
// phase on the image of such a band, of which it may have fewer rows, or none.
lanes::ConvShape all_phases(const std::vector<DataPhase>& phases);
lanes::ConvShape shape_in(const Band& band, const DataPhase& phase, int begin, int end);
// The rows of the result computed from one band: as many as fit its image of 4-byte values in half of the second-level
// cache; even, so that pooling windows are not split.
int band_rows(const lanes::ConvShape& shape);
// Calls f(block, group, first row, end of rows) for all bands of `count` blocks of 16 samples, in parallel.
template <class F>
void each_band(const lanes::ConvShape& shape, std::int64_t count, std::int64_t groups, int threads, F f) {
  const int rows = band_rows(shape);
  const int bands = (shape.out_h + rows - 1) / rows;
#pragma omp parallel for collapse(3) schedule(static) num_threads(threads)
  for (std::int64_t b = 0; b < count; ++b) {
    for (std::int64_t g = 0; g < groups; ++g) {
      for (int band = 0; band < bands; ++band) f(b, g, band * rows, std::min((band + 1) * rows, shape.out_h));
    }
  }
}
// x: [in_channels][in_h][in_w][16] of the whole convolution's shape. From Bf16 to floats: as pairs of channels, where `band` is not
// of a shape of pairs.
void copy_band(const lanes::ConvShape& whole, const Band& band, const float* x, float* to);
void copy_band(const lanes::ConvShape& whole, const Band& band, const Bf16* x, Bf16* to);
void copy_band(const lanes::ConvShape& whole, const Band& band, const Bf16* x, float* to);

// The pieces in which a weight gradient is summed, rows of some blocks of 16 samples, and the blocks whose gradients are processed
// together. They determine the order of additions, so they do not depend on the number of threads.
struct GradientPieces {
  int rows;
  std::int64_t blocks;
  std::int64_t together;
};
GradientPieces gradient_pieces(const lanes::ConvShape& shape, Element element);
// The channels that an outer gradient stores: whole tiles, and one more vector, so that the positions that it reads one
// after the other are not in the same sets of a cache.
inline std::int64_t outer_width(const lanes::ConvShape& shape, const lanes::OuterTile& tile) {
  return round_up(shape.in_channels, kLanes * tile.vectors) + kLanes;
}
inline int outer_vector_tiles(const lanes::ConvShape& shape, const lanes::OuterTile& tile) {
  return static_cast<int>(round_up(shape.in_channels, kLanes * tile.vectors) / (kLanes * tile.vectors));
}
// The image with `width` channels in the lanes, as an outer gradient reads it, and its size in floats. There may be a
// source_gap behind the planes of x.
void copy_band_outer(const lanes::ConvShape& whole, const Band& band, const float* x, std::int64_t width, float* to);
void copy_band_outer(const lanes::ConvShape& whole, const Band& band, const Bf16* x, std::int64_t width, float* to);
std::int64_t outer_elements(const Band& band, std::int64_t width, Element element);

}  // namespace ddp
