// Convolutions in the lanes16 layout as the kernels see them: one group of channels at a time, forward and as data
// gradient.
//
//   for (const DataPhase& phase : data_phases(spec)) kernel(phase.shape, dpre, packed, nullptr, dx + 16 * phase.begin, ...);
#pragma once

#include <vector>

#include "backend/cpu/lanes_kernels.h"
#include "backend/op.h"

namespace ddp {

// With a border of columns of zeros as wide as the padding.
lanes::ConvShape forward_shape(const ConvSpec& spec);

// The data gradient is a convolution of the output's gradient with the weights flipped and transposed. With stride s, the
// pixels that are s apart see the same taps, so it is s x s convolutions of stride 1, each with a part of the taps (none:
// its gradient is zero) and results s apart. Their tiles have one row, so that only columns need a border.
struct DataPhase {
  lanes::ConvShape shape;
  int tap_row, tap_column;  // its first taps; the others follow `stride` apart
  std::int64_t begin;       // the vector of the first pixel in a plane of the input's gradient
};
// All have the same border. Phases without pixels are left out.
std::vector<DataPhase> data_phases(const ConvSpec& spec);

// Floats of the packed weights of one group.
std::int64_t packed_weights(const lanes::ConvShape& shape, int tile_channels);
// [out][in][h][w] -> [out/tile][in][h][w][tile], zeros beyond the last channel.
void pack_forward(const lanes::ConvShape& shape, const float* w, int tile, float* packed);
// The same for a phase of the data gradient, from the forward convolution's weights of one group.
void pack_data(const ConvSpec& spec, const DataPhase& phase, const float* w, int tile, float* packed);

// Rows of an image that a band of a convolution's rows reads, with zeros around them, as a small image of its own: what
// the kernels pass over again and again lies side by side in the cache.
struct Band {
  lanes::ConvShape shape;  // of the band's rows alone
  int first_row;           // of the image; may lie in the padding
  int step;                // between the rows and between the columns that are copied
};
// The band of the result's rows from `begin` to `end`. Kernels of single rows leave out rows of padding, others read
// zeros there.
Band band_of(const lanes::ConvShape& shape, int begin, int end, bool single_rows);
// Floats of its image.
std::int64_t band_elements(const Band& band);
// x: [in_channels][in_h][in_w][16] of the whole convolution's shape.
void copy_band(const lanes::ConvShape& whole, const Band& band, const float* x, float* to);

}  // namespace ddp
