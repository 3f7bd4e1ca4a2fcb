// The weight gradient of convolutions in lanes16 with AMX (amx_conv.h). Images are copied with the values of 32 samples together,
// gradients transposed to pairs of samples.
//
//   AmxWeightGradient<Bf16> gradient(spec, tiles.weights, threads);          // see direction.h
#pragma once

#include "backend/cpu/conv/amx/amx_image.h"
#include "backend/cpu/conv/amx/amx_kernels.h"
#include "backend/cpu/conv/tiles/direction.h"
#include "backend/cpu/conv/tiles/tile.h"

namespace ddp {

template <class Value>
class AmxWeightGradient final : public ConvGradient {
 public:
  AmxWeightGradient(const ConvSpec& spec, const WeightTile& tile, int threads);

  std::int64_t memory_elements() const override;
  std::int64_t blocks_together() const override { return 2 * std::int64_t{most_pairs_}; }
  void add(ConstActivations x, ConstActivations dpre, const GradientBlocks& blocks) const override;

 private:
  // Rows [begin, end) of results of a group. `dw`: of the group, if it is the last part.
  struct Part {
    const Value* x;
    const Value* dy;
    int begin, end;
    bool accumulate;
    float* dw;
  };
  void copy_image(const Part& part, const GradientBlocks& blocks) const;
  void copy_row(const Part& part, std::int64_t blocks, std::int64_t pair, int row, float* to) const;
  void copy_gradient(const Part& part, const GradientBlocks& blocks) const;
  void multiply(const Part& part, std::int64_t count, const float* images, float* sums) const;
  void finish_tile(const float* sums, int first, int channel, float* dw) const;

  // Taps of a row of the window, and tiles of them and of output channels, whole tiles of the kernel.
  int row_taps() const { return shape_.kernel_w * image_.depth(); }
  int tap_tiles() const { return static_cast<int>(round_up(tile_count(row_taps(), lanes::kAmxRows), tile_.taps)); }
  int channel_tiles() const;
  // Sums are computed in chunks, of the output channels of a kernel and of some values of a column in all places of the window,
  // so that those of a chunk stay in the cache: [rows of the window][chunk_tiles][tile_.channels] tiles.
  bool has_chunks() const { return image_.depth() % (lanes::kAmxRows * tile_.taps) == 0; }
  int chunks() const { return image_.depth() / chunk_depth_; }
  int chunk_tiles() const { return has_chunks() ? shape_.kernel_w * tile_.taps : tap_tiles(); }
  std::int64_t chunk_sums() const {
    return std::int64_t{image_.window_rows()} * chunk_tiles() * tile_.channels * lanes::kAmxTile;
  }
  std::int64_t sums_group() const { return channel_tiles() / tile_.channels * chunks() * chunk_sums(); }
  // Elements of a pair of blocks, and of all.
  std::int64_t image_pair(int results) const;
  std::int64_t gradient_pair(int results) const;
  std::int64_t images() const { return most_pairs_ * image_pair(piece_rows_); }
  std::int64_t gradients() const { return most_pairs_ * gradient_pair(piece_rows_); }
  std::int64_t position() const { return kLanes * image_.depth(); }

  lanes::ConvShape shape_;
  AmxImage image_;
  std::int64_t groups_;
  std::int64_t x_size_, dy_size_;  // values of a block of 16 samples
  lanes::AmxGradientTile tile_;
  int threads_;
  int chunk_depth_;
  int piece_rows_ = 1;
  int most_pairs_ = 1;
};

}  // namespace ddp
