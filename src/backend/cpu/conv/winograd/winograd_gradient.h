// The weight gradient of a convolution by Winograd's algorithm, in the forms of winograd.h. Windows of
// the input and tiles of the results' gradient are transformed, multiplied and summed over samples and tiles for each
// frequency, and the sums are transformed back. One of the two has its channels in the lanes, that which fills them
// better; it is transposed before it is transformed. Activations are floats or bf16 numbers; products are of floats, or of
// pairs of bf16 numbers, of two samples.
//
//   WinogradGradient gradient(spec, tiles.weights, Element::fp32, threads);          // see direction.h
#pragma once

#include "backend/cpu/conv/tiles/conv_kernels.h"
#include "backend/cpu/conv/winograd/winograd.h"

namespace ddp {

class WinogradGradient final : public ConvGradient {
 public:
  // On activations of `element`; the tile sums the products.
  WinogradGradient(const ConvSpec& spec, const WeightTile& tile, Element element, int threads);

  // The multiply-adds of a frequency and sample with such a tile, whole ones.
  static std::int64_t work(const lanes::ConvShape& shape, const lanes::OuterTile& tile);

  std::int64_t memory_elements() const override;
  std::int64_t blocks_together() const override { return together_; }
  void add(ConstActivations x, ConstActivations dpre, const GradientBlocks& blocks) const override;

 private:
  // One of the two factors.
  struct Factors {
    int channels;
    int height, width;  // of a plane
    int top, left;      // of the first window or tile
    int rows, columns;  // that the windows or tiles of a band cover together
    int step;           // rows and columns from one to the next
    std::int64_t plane() const { return kLanes * std::int64_t{height} * width; }
  };
  // A band of some blocks, of a group: its first values in x or dy, the values of a block, and its first row of tiles.
  template <class Value>
  struct Part {
    const Value* values;
    std::int64_t block;
    std::int64_t count;
    int row;
  };
  // Value: of activations; Factor: of products, float or Bf16.
  template <class Value, class Factor>
  void transform_lanes(const Part<Value>& part, float* memory) const;
  template <class Value>
  void transpose(const Value* values, int row, float* image) const;
  template <class Value, class Factor>
  void transform_scalars(const Part<Value>& part, float* memory) const;
  // Some channels of both factors, and their sums: [frequency][scalar][lane], `frequency` floats apart.
  struct Sums {
    int scalar, scalars, lane, lanes;
    float* first;
    std::int64_t frequency;
  };
  // Multiplies one frequency of `count` blocks.
  template <class Factor>
  void multiply(int f, const Sums& sums, std::int64_t count, bool accumulate, const float* memory) const;
  template <class Factor>
  void multiply_all(std::int64_t group, std::int64_t count, bool accumulate, float* memory) const;
  template <class Factor>
  void multiply_at_once(std::int64_t group, std::int64_t count, float* dw, float* memory) const;
  template <class Value, class Factor>
  void add_factors(const Value* x, const Value* dpre, const GradientBlocks& blocks) const;
  void finish(std::int64_t group, const Sums& sums, float* dw) const;
  void finish_all(float* dw, float* memory) const;

  // Whether one band has all blocks. Then sums are those of some channels at a time, in the cache; those of all may be more
  // than a cache has room for.
  bool at_once() const { return band_.bands == 1 && blocks_ <= band_.blocks; }
  std::int64_t sums_elements() const;
  // Floats between frequencies of the sums of all channels and of the factor in the lanes, factors between those of the
  // other, and where values begin in memory.
  std::int64_t sums_frequency() const { return scalars_.channels * lanes_width() + kWinogradApart; }
  std::int64_t lanes_frequency() const { return floats_of(kLanes * band_.tiles() * width_) + kWinogradApart; }
  std::int64_t scalars_frequency() const {
    return kLanes * band_.tiles() * std::int64_t{scalars_.channels} + kWinogradApart;
  }
  std::int64_t lanes_begin() const { return sums_elements(); }
  std::int64_t scalars_begin() const { return lanes_begin() + form_.frequencies() * lanes_frequency(); }
  std::int64_t image_begin() const {
    return scalars_begin() + round_up(floats_of(form_.frequencies() * scalars_frequency()), kLanes);
  }
  // The floats of that many factors.
  std::int64_t floats_of(std::int64_t factors) const { return form_.pairs ? factors / 2 : factors; }
  std::int64_t lanes_width() const { return round_up(lanes_.channels, kLanes); }

  lanes::ConvShape shape_;  // of one group
  std::int64_t groups_;
  std::int64_t blocks_;  // all
  std::int64_t together_;
  std::int64_t x_group_, dy_group_;  // values of a block
  lanes::OuterTile tile_;
  WinogradForm form_;
  int threads_;
  lanes::WinogradPlane plane_;
  WinogradBand band_;
  bool results_in_lanes_;  // rather than input channels
  Factors lanes_, scalars_;
  std::int64_t width_;  // of lanes_ in memory, as outer_width()
};

}  // namespace ddp
