// Transforms of Winograd's algorithm in lanes16 (winograd.h), of windows, weights, results and gradients, compiled once for each
// instruction set; conv/tiles has the products between them.
//
//   for (const lanes::WinogradTable& table : lanes::winograd_kernels().forms) ...
#pragma once

#include <cstdint>

namespace ddp::lanes {

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
// The kernels for tiles of one size and one window. Of bf16 numbers, products are either of pairs or of floats.
struct WinogradTable {
  int size, window, stride;
  bool pairs;
  WinogradKernels<float> fp32;
  WinogradKernels<std::uint16_t> bf16;
  // Adds the gradients of the windows of a row of tiles, from those of their frequencies, to those of the image.
  void (*input_gradient)(const WinogradPlane& plane, const float* products, std::int64_t frequency, int tile_row,
                         float* dx);
};
struct WinogradGradientTable {
  WinogradGradientKernels<float, float> fp32;
  WinogradGradientKernels<std::uint16_t, float> bf16;
  WinogradGradientKernels<std::uint16_t, std::uint16_t> pairs;
  // The gradients of up to 16 windows of weights, `step` floats apart, from those of their frequencies, [frequencies][16],
  // which are `frequency` floats apart; reads 16 of each.
  void (*weights)(const float* products, std::int64_t frequency, int count, float* dw, std::int64_t step);
};
inline constexpr int kWinogradForms = 4;

// The forms are in the order in which tiles name them (ConvTile::form).
struct WinogradForms {
  WinogradTable forms[kWinogradForms];
};
struct WinogradGradientForms {
  WinogradGradientTable forms[kWinogradForms];
};

const WinogradForms& winograd_kernels();
const WinogradGradientForms& winograd_gradient_kernels();

}  // namespace ddp::lanes
