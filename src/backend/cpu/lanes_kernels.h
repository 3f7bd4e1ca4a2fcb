// Kernels of the lanes16 layout: 16 samples per vector, with blocks of output channels and positions in registers.
//
// The same source is compiled once for each instruction set (lanes_avx512.cpp, lanes_avx2.cpp, lanes_baseline.cpp) and
// selected at program start, so lanes_kernels.inc must not use standard library headers: their inline functions would
// be compiled for the wrong processor.
//
// Each kernel family has several register tiles; the fastest depends on the shape and is found by timing.
#pragma once

#include <cstdint>

#include "backend/cpu/elementwise_kernels.h"
#include "backend/cpu/gelu_kernels.h"
#include "backend/cpu/lrn_kernels.h"
#include "backend/cpu/matrix_kernels.h"
#include "backend/cpu/norm_kernels.h"
#include "backend/cpu/pointwise_kernels.h"
#include "backend/cpu/pool_kernels.h"
#include "backend/cpu/prelu_kernels.h"
#include "backend/cpu/sample_norm_kernels.h"
#include "backend/cpu/slab_kernels.h"

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
//   least   lesser results become this: 0 with ReLU, otherwise -infinity (least_result()); pooled: always ReLU
//   y       as the shape says; pooled: [out_channels][out_h/2][out_w/2][16]
//   mask    pooled only: [out_channels][out_h/2][out_w/2][4] bits of the samples whose ReLU passes the gradient
using ConvForward = void (*)(const ConvShape& shape, const float* x, const float* w, const float* bias, float least,
                             void* y, std::uint16_t* mask, int first_row, int last_row);

enum class Epilogue { none, relu, relu_pool };
// The least result of a forward kernel.
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

// One plane of a convolution by Winograd's algorithm, in tiles of Size x Size results, which have
// ((Size - 1) * Stride + Window)^2 frequencies; pads as in ConvShape.
struct WinogradPlane {
  int in_h, in_w, pad_top, pad_left;
  int out_h, out_w;
  int tile_columns;
  std::int64_t out_row;
};
// The weights of up to 16 output channels and all input channels, and the floats from one channel to the next.
struct WinogradWeights {
  const float* weights;
  std::int64_t out, in;
  int outputs, inputs;
  bool flipped;
};
// Where they go when they are transformed, of 16 output channels, if necessary the last one repeated: pieces [input channel or
// pair of them][width], of which this is the first value, for each frequency `frequency` floats apart.
struct WinogradPiece {
  int first, count;  // output channels
  float* to;
};
struct WinogradPacked {
  const WinogradPiece* pieces;
  int count, width;
  std::int64_t frequency;
};
// What follows the products of a plane: bias, ReLU, and if they are pooled, the mask as of ConvForward.
template <class Value>
struct WinogradResults {
  float bias;
  bool relu;
  Value* y;
  std::uint16_t* mask;
};
using WinogradPack = void (*)(const WinogradWeights& task, const WinogradPacked& to);
template <class Value>
struct WinogradKernels {
  WinogradPack weights;
  // The transformed windows of a row of tiles, vectors of all frequencies `frequency` floats apart; with pairs, pairs of
  // bf16 numbers, of those of two channels, of which the upper may be null.
  void (*input)(const WinogradPlane& plane, const Value* x, const Value* upper, int tile_row, float* to,
                std::int64_t frequency);
  // The same of gradients, which are spread over windows, by the transform of gradients; null for forms of which none are.
  void (*spread)(const WinogradPlane& plane, const Value* dy, const Value* upper, int tile_row, float* to,
                 std::int64_t frequency);
  // The results of a row of tiles from the products.
  void (*output)(const WinogradPlane& plane, const float* products, std::int64_t frequency, int tile_row,
                 const WinogradResults<Value>& results);
  // Null with a stride.
  void (*pooled_output)(const WinogradPlane& plane, const float* products, std::int64_t frequency, int tile_row,
                        const WinogradResults<Value>& results);
};
// Values with channels in the lanes, as tiles or their windows cover them: [row][column][16][width] floats, or
// [row][column][8][width] pairs of samples.
struct WinogradImage {
  const float* values;
  int columns;
  int tile_columns;
  std::int64_t width;
};
// The kernels of the weight gradient. Factors of products are floats or bf16 numbers.
template <class Value, class Factor>
struct WinogradGradientKernels {
  // The transformed windows of a row of tiles, vectors of all frequencies `frequency` factors apart.
  void (*input)(const WinogradPlane& plane, const Value* x, int tile_row, Factor* to, std::int64_t frequency);
  // The same for the gradients of the results.
  void (*gradient)(const WinogradPlane& plane, const Value* dy, int tile_row, Factor* to, std::int64_t frequency);
  // Both with channels in the lanes: [tile][16][width], or [tile][8][width] pairs of samples, frequencies `frequency`
  // floats apart.
  void (*input_in_lanes)(const WinogradImage& image, int tile_row, float* to, std::int64_t frequency);
  void (*gradient_in_lanes)(const WinogradImage& image, int tile_row, float* to, std::int64_t frequency);
};
// All kernels for tiles of one size and one window. Of bf16 numbers, products are either of pairs or of floats.
struct WinogradTable {
  int size, window, stride;
  bool pairs;
  WinogradKernels<float> fp32;
  WinogradKernels<std::uint16_t> bf16;
  WinogradGradientKernels<float, float> gradient;
  WinogradGradientKernels<std::uint16_t, float> bf16_gradient;
  WinogradGradientKernels<std::uint16_t, std::uint16_t> pair_gradient;
  // The gradients of up to 16 windows of weights, `step` floats apart, from those of their frequencies, [frequencies][16],
  // which are `frequency` floats apart; reads 16 of each.
  void (*weights_gradient)(const float* products, std::int64_t frequency, int count, float* dw, std::int64_t step);
  // Adds the gradients of the windows of a row of tiles, from those of their frequencies, to those of the image.
  void (*input_gradient)(const WinogradPlane& plane, const float* products, std::int64_t frequency, int tile_row,
                         float* dx);
};
inline constexpr int kWinogradForms = 4;
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

// Linear: blocks of 16 samples x [blocks][inputs][16], w [outputs][inputs].
struct LinearShape {
  int blocks;
  int inputs;
  int outputs;
};
// y[block][o][16] for the output tile with the given index.
using LinearForward = void (*)(const LinearShape& shape, const float* x, const float* w, const float* bias, bool relu,
                               float* y, int output_tile);
// dx[block][i][16] for the input tile with the given index.
using LinearData = void (*)(const LinearShape& shape, const float* dy, const float* w, float* dx, int input_tile);
// dw[o][i], db[o] for the output tile with the given index (all inputs).
using LinearWeights = void (*)(const LinearShape& shape, const float* x, const float* dy, float* dw, int output_tile);

struct ForwardTile {
  int channels, rows, columns;
  ConvForward direct[3];      // for stride 1, 2 and any; null if it does not exist
  ConvForward pooled;         // for stride 1; null unless the tile is for pooling
  WinogradMultiply products;  // null for pooling tiles
};
struct WeightsTile {
  int channels, taps;
  ConvWeights<float> kernel;
  ConvWeights<std::uint16_t> pairs;
};

// Convolution of one channel's plane without a border: y = conv(x, w) + bias.
//   w       [kernel_h][kernel_w]
using PlaneForward = void (*)(const ConvShape& shape, const float* x, const float* w, float bias, float* y);
using PlaneForwardBf16 = void (*)(const ConvShape& shape, const std::uint16_t* x, const float* w, float bias,
                                  std::uint16_t* y);
// sums[tap][16] += x * dy over the positions of a plane.
struct PlaneGradient {
  ConvShape shape;
  const float* x;
  const float* dy;
  float* sums;
};
using PlaneWeights = void (*)(const PlaneGradient& task);
// dw[tap] = the total of sums[tap][16].
using PlaneTotals = void (*)(const float* sums, int taps, float* dw);

inline constexpr int kPlaneTaps = 9;
inline constexpr int kLinearTile = 4;

// All kernels compiled for one instruction set.
struct Kernels {
  const char* instruction_set;
  const ForwardTile* forward;
  const ForwardTile* pair_forward;  // the same tiles with pairs of bf16 numbers
  int forward_tiles;
  const WeightsTile* weights;
  int weights_tiles;
  WinogradTable winograd[kWinogradForms];
  const OuterTile* outer;
  int outer_tiles;
  // Up to 8 channels, `plane` values apart, of 16 samples at each of `positions` -> x of an outer gradient.
  void (*transpose_samples)(const float* x, std::int64_t plane, int channels, std::int64_t positions, float* to,
                            std::int64_t width);
  void (*transpose_pairs)(const std::uint16_t* x, std::int64_t plane, int channels, std::int64_t positions, float* to,
                          std::int64_t width);
  LinearForward linear_forward;
  LinearData linear_data;
  LinearWeights linear_weights;
  // bias gradient of `count` vectors: returns the sum over all lanes.
  float (*sum)(const float* values, std::int64_t vectors);
  float (*sum_bf16)(const std::uint16_t* values, std::int64_t vectors);
  // dpre[out_h][dst_w][16] of one channel from the pooled gradient and the mask of the forward pass.
  void (*unpool)(const float* dy, const std::uint16_t* mask, float* dpre, int pooled_h, int pooled_w, int dst_w);
  void (*unpool_bf16)(const std::uint16_t* dy, const std::uint16_t* mask, std::uint16_t* dpre, int pooled_h,
                      int pooled_w, int dst_w);
  PlaneForward plane_forward;
  PlaneForwardBf16 plane_forward_bf16;
  PlaneWeights plane_weights;
  PlaneTotals plane_totals;
  ConvWeights<std::uint16_t> plane_pairs;  // for one channel; its tile has as many taps as a 3x3 window
  NormKernels norm;
  LrnKernels lrn;
  ElementwiseKernels elementwise;
  PoolKernels pool;
  GeluKernels gelu[2];  // by GeluForm
  PointwiseKernels pointwise[kPointwiseFunctions];
  ProductKernels product;
  SampleNormTable sample_norm;
  PreluKernels prelu;
  SlabKernels slab;
  MatrixKernels matrix;
  // Multiplies and adds in registers without memory, for measuring what a core can do: `rounds` times
  // `round_multiply_adds` of them. Returns a sum that depends on all.
  float (*multiply_adds)(std::int64_t rounds, float factor);
  int round_multiply_adds;
};

// Whether to use the kernels with pairs of bf16 numbers: if the processor has instructions for them. Otherwise they are
// a software model with the same bits, which is slower than fp32 and used only if DDP_INSTRUCTION_SET ends in +bf16 or +amx.
bool uses_pairs();

// The kernels for this processor: the best that it supports, or those selected by the environment variable
// DDP_INSTRUCTION_SET (avx512, avx2, baseline, each also with +bf16, or with +amx for those of amx_kernels.h), so that
// different machines can compute the same bits. Throws Error(preflight) for an instruction set that the processor does not have.
const Kernels& kernels();
// Whether oneDNN is to be limited to the same instruction set, which DDP_INSTRUCTION_SET says by +onednn at its end.
bool limits_onednn();

}  // namespace ddp::lanes
