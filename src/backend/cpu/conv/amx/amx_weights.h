// Weights as convolutions with AMX read them (amx_conv.h): tiles of 16 output channels and 16 pairs of the values of a window,
// rounded to bf16.
//
//   const AmxWeights<Bf16> weights(shape, image, tile.channels);
//   weights.pack(w, forward_places(shape), groups, threads, packed);         // groups * weights.group_elements() floats
#pragma once

#include "backend/cpu/conv/amx/amx_image.h"
#include "backend/cpu/conv/amx/amx_kernels.h"
#include "backend/cpu/conv/tiles/shapes.h"

namespace ddp {

template <class Value>
class AmxWeights {
 public:
  // Weights of a group; `image` is how windows lie.
  AmxWeights(const lanes::ConvShape& shape, const AmxImage& image, int tile_channels);

  // For a column of the image: for each product of parts the pairs of all its values.
  int pairs() const { return (depth_ + 1) / 2; }
  int vectors() const { return kAmxProducts<Value> * pairs(); }
  // Tiles of pairs of a row of the window.
  int steps() const;
  // Tiles of `tile_channels` output channels, and floats of one of them and of a group.
  int channel_tiles() const;
  std::int64_t tile_elements() const { return std::int64_t{window_rows_} * steps() * step_elements(); }
  std::int64_t group_elements() const { return channel_tiles() * tile_elements(); }

  // [groups][channel_tiles][window rows][steps][tile_channels/16] tiles, with zeros for what does not exist.
  void pack(const float* weights, const WeightPlaces& places, std::int64_t groups, int threads, float* packed) const;

 private:
  std::int64_t step_elements() const { return tile_channels_ / lanes::kAmxRows * lanes::kAmxTile; }
  // Whether each step has 16 pairs of channels of one column.
  bool has_whole_steps() const { return merged_ == 1 && depth_ % (2 * lanes::kAmxRows) == 0; }
  // The weights from the first to the last of a window in memory.
  struct Span {
    std::int64_t first, size;
  };
  Span window_of(const WeightPlaces& places) const;
  void pack_step(const WeightPlaces& places, const float* row, int step, int channel, float* to) const;
  void pack_pairs(const WeightPlaces& places, const float* first, int channel, int pair, float* to) const;

  int out_channels_, depth_, merged_, window_rows_, kernel_w_, tile_channels_;
};

}  // namespace ddp
