// The weight gradient of a 3x3 convolution with stride 1 by Winograd's algorithm, in tiles of 2x2 or 4x4 results: 16 or 36
// products instead of 36 or 144. Windows of the input and tiles of the results' gradient are transformed, multiplied and
// summed over samples and tiles for each frequency with input channels in the lanes, and the sums are transformed back.
// Activations are floats or bf16 numbers; products are of floats, or with size 2 of pairs of bf16 numbers, of two samples.
//
//   WinogradGradient gradient(forward_shape(spec), groups, outer_tile, {.size = 4}, threads);
//   gradient.add(x, dy, {.count = 4, ...}, workspace);       // gradient.floats() floats
//   gradient.finish(dw, workspace);
#pragma once

#include "backend/cpu/lanes_kernels.h"
#include "backend/cpu/lanes_winograd.h"

namespace ddp {

class WinogradGradient {
 public:
  // `tile` sums the products. `shape`: of one group, as lanes_shapes.h makes it.
  WinogradGradient(const lanes::ConvShape& shape, std::int64_t groups, const lanes::OuterTile& tile, WinogradForm form,
                   int threads);

  std::int64_t floats() const;

  // Blocks of 16 samples; x and dy are their first values, with these numbers of values between blocks.
  struct Blocks {
    std::int64_t count;
    std::int64_t x_size, dy_size;
    bool accumulate;  // to the sums in memory
  };
  template <class Value>
  void add(const Value* x, const Value* dy, const Blocks& blocks, float* memory) const;
  // [groups][out][in][3][3] from the sums.
  void finish(float* dw, const float* memory) const;

 private:
  // A band of a group: `count` blocks from those that x and dy point to, from tile row `row` on.
  template <class Value>
  struct Part {
    const Value* x;
    const Value* dy;
    std::int64_t count;
    int row;
  };
  // Value: of activations; Factor: of products, float or Bf16.
  template <class Value, class Factor>
  void transform_input(const Part<Value>& part, const Blocks& blocks, float* memory) const;
  template <class Value, class Factor>
  void transform_gradient(const Part<Value>& part, const Blocks& blocks, float* memory) const;
  template <class Factor>
  void multiply(std::int64_t group, std::int64_t count, bool accumulate, float* memory) const;
  template <class Value, class Factor>
  void add_factors(const Value* x, const Value* dy, const Blocks& blocks, float* memory) const;

  // Floats between frequencies of sums and of the input, factors between the others, and where values begin in memory.
  std::int64_t sums_frequency() const;
  std::int64_t input_frequency() const;
  std::int64_t gradient_frequency() const;
  std::int64_t channels_frequency() const;
  std::int64_t input_begin() const;
  std::int64_t gradient_begin() const;
  std::int64_t channels_begin() const;
  // The floats of that many factors.
  std::int64_t floats_of(std::int64_t factors) const { return form_.pairs ? factors / 2 : factors; }

  lanes::ConvShape shape_;
  std::int64_t groups_;
  lanes::OuterTile tile_;
  WinogradForm form_;
  int threads_;
  lanes::WinogradPlane plane_;
  WinogradBand band_;
  std::int64_t width_;  // outer_width()
};

}  // namespace ddp
