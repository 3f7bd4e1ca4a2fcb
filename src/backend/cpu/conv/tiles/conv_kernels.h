// Kernels of convolutions in the lanes16 layout: 16 samples per vector, with blocks of output channels and positions in
// registers; also of the products of Winograd's algorithm, which are convolutions of single pixels.
//
//   const lanes::ForwardTile& tile = lanes::conv_kernels().forward[index];
//   tile.direct[0](shape, x, packed, bias, lanes::least_result(relu), y, nullptr, 0, shape.out_h);
//
// Each kind of kernel has several register tiles; the fastest depends on the shape and is found by timing. Like those of all
// families they are compiled once for each instruction set (isa/kernels.inc).
#pragma once

#include <cstdint>

namespace ddp::lanes {

// A convolution of one group of channels over blocks of 16 samples. The source planes have a border of zeros that the
// kernel may read: row y, column x of the image lie at (y + border_h) and (x + border_w) of a plane of `source_h` x
// `source_w`. Results may be strided, as for a data gradient with stride 2: row y, column x of channel c is at vector c
// * out_plane + y * out_row + x * out_step.
struct ConvShape {
  int in_channels;
  int in_h, in_w;          // the image, without border
  int border_h, border_w;  // stored rows and columns of zeros on each side
  int pad_top, pad_left;  // padding before the image of the window of output (0, 0); negative: the window begins inside
  int out_channels, out_h, out_w;
  int kernel_h, kernel_w;
  int stride;  // between the windows of neighbouring outputs
  std::int64_t out_plane, out_row, out_step;
  int source_gap = 0;  // unused vectors behind the stored rows of each channel

  int source_h() const { return in_h + 2 * border_h; }
  int source_w() const { return in_w + 2 * border_w; }
  std::int64_t source_plane() const { return std::int64_t{16} * (source_h() * source_w() + source_gap); }
};

// With pairs, each float of x and w is a pair of bf16 numbers, of input channels 2c (the lower half) and 2c + 1,
// in_channels counts pairs, and y is bf16.
//
// Forward: y = conv(x, w) + bias for one block of 16 samples.
//   x       [in_channels][source_h][source_w][16]
//   w       packed [out_channels/tile.channels][in_channels][kernel_h][kernel_w][tile.channels], zero-padded
//   bias    [out_channels] or null
//   least   lower clamp of the results: 0 with ReLU, otherwise -infinity (least_result()); pooled: always ReLU
//   y       as the shape says; pooled: [out_channels][out_h/2][out_w/2][16]
//   mask    pooled only: [out_channels][out_h/2][out_w/2][4] bits of the samples whose ReLU passes the gradient
using ConvForward = void (*)(const ConvShape& shape, const float* x, const float* w, const float* bias, float least,
                             void* y, std::uint16_t* mask, int first_row, int last_row);

enum class Epilogue { none, relu, relu_pool };
// The lower clamp of a forward kernel.
constexpr float least_result(bool relu) { return relu ? 0.0F : -__builtin_inff(); }

// Weight gradient over `blocks` blocks of 16 samples: dw[out][tap] (+)= sum dy * x, taps in [in][kernel_h][kernel_w].
//   x       blocks of [in_channels][source_h][source_w][16], `x_block` values apart
//   dy      blocks of planes of [out_h][out_w][16], `dy_block` values apart, planes `dy_plane` vectors apart
// Values are floats or bf16 numbers, which are multiplied as pairs of samples, two neighbouring positions at a time.
template <class Value>
struct WeightGradient {
  ConvShape shape;
  const Value* x;
  std::int64_t x_block;
  const Value* dy;
  std::int64_t dy_block;
  std::int64_t dy_plane;
  int blocks;
  float* dw;
  bool accumulate;
};
// Computes the tile of output channels and taps with the given indices.
template <class Value>
using ConvWeights = void (*)(const WeightGradient<Value>& task, int channel_tile, int tap_tile);

// The same with input channels in the lanes, which needs no sums over lanes: for every sample or pair of samples an outer
// product of the gradients of output channels with the input channels.
//   x       blocks of [source_h][source_w][16][width] values, or [8][width] pairs of samples, `x_block` floats apart,
//           where `width` is the number of input channels rounded up to whole tiles, zero beyond the last channel
// Where all windows are single pixels, input and output channels may be exchanged, so that the fewer ones are in the lanes: `shape`
// has the output channels as in_channels, x is the gradient and dy the image.
template <class Value>
struct OuterGradient {
  ConvShape shape;
  const float* x;
  std::int64_t x_block;
  std::int64_t width;
  const Value* dy;
  std::int64_t dy_block;
  std::int64_t dy_plane;
  int blocks;
  float* dw;
  bool accumulate;
  bool exchanged = false;
};
// Computes all taps of the tile of output and input channels with the given indices.
template <class Value>
using OuterWeights = void (*)(const OuterGradient<Value>& task, int row_tile, int vector_tile);
// The products of the tiles of a band for one frequency of Winograd's algorithm, summed over tiles and samples:
// sums[scalar][lane] (+)= sum of lanes * scalars
//   lanes    [tiles][16][width] floats, or [tiles][8][width] pairs of samples, of which `count` lanes, a multiple of 16, are
//            stored
//   scalars  [rows] planes of [tiles][16], `plane` values apart
template <class Factor>
struct WinogradSums {
  const float* lanes;
  std::int64_t width;
  int count;
  const Factor* scalars;
  std::int64_t plane;
  int rows;
  std::int64_t tiles;
  float* sums;
  bool accumulate;
};
template <class Factor>
using WinogradOuter = void (*)(const WinogradSums<Factor>& task);
struct OuterTile {
  int rows, vectors;
  OuterWeights<float> kernel;
  OuterWeights<std::uint16_t> pairs;
  WinogradOuter<float> winograd;
  WinogradOuter<std::uint16_t> winograd_pairs;
};

// The products of the tiles of a band, for all frequencies: y[result][tile][16] = sum over sources of w x. With pairs each
// float of x and w is a pair of bf16 numbers, of two sources.
//   x       [sources][tiles][16]
//   w       packed [results/tile.channels][sources][tile.channels], zero-padded
struct WinogradProducts {
  int frequencies;
  int sources, tiles, results;
  const float* x;
  const float* w;
  float* y;
  std::int64_t x_frequency, w_frequency, y_frequency;  // floats between frequencies
};
using WinogradMultiply = void (*)(const WinogradProducts& products);

struct ForwardTile {
  int channels, rows, columns;
  ConvForward direct[3];  // for stride 1, 2 and any; null if it does not exist
  ConvForward pooled;     // for stride 1; null unless the tile is for pooling
};
struct WeightsTile {
  int channels, taps;
  ConvWeights<float> kernel;
  ConvWeights<std::uint16_t> pairs;
};

// The families of kernels, for this processor's instruction set.
struct ConvKernels {
  const ForwardTile* forward;
  int forward_tiles;
};
const ConvKernels& conv_kernels();
const ConvKernels& pair_kernels();  // the same tiles with pairs of bf16 numbers

// By the index of the forward tile; null for pooling tiles.
struct WinogradProductKernels {
  const WinogradMultiply* floats;
  const WinogradMultiply* pairs;
};
const WinogradProductKernels& product_kernels();

struct GradientKernels {
  const WeightsTile* weights;
  int weights_tiles;
  const OuterTile* outer;
  int outer_tiles;
  // Up to 8 channels, `plane` values apart, of 16 samples at each of `positions` -> x of an outer gradient.
  void (*transpose_samples)(const float* x, std::int64_t plane, int channels, std::int64_t positions, float* to,
                            std::int64_t width);
  void (*transpose_pairs)(const std::uint16_t* x, std::int64_t plane, int channels, std::int64_t positions, float* to,
                          std::int64_t width);
  // bias gradient of `count` vectors: returns the sum over all lanes.
  float (*sum)(const float* values, std::int64_t vectors);
  float (*sum_bf16)(const std::uint16_t* values, std::int64_t vectors);
  // dpre[out_h][dst_w][16] of one channel from the pooled gradient and the mask of the forward pass.
  void (*unpool)(const float* dy, const std::uint16_t* mask, float* dpre, int pooled_h, int pooled_w, int dst_w);
  void (*unpool_bf16)(const std::uint16_t* dy, const std::uint16_t* mask, std::uint16_t* dpre, int pooled_h,
                      int pooled_w, int dst_w);
};

const GradientKernels& gradient_kernels();

}  // namespace ddp::lanes
