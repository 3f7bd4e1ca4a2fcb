// Kernels of convolutions in lanes16 by AMX, whose instructions multiply tiles of 16 rows of 64 bytes: 16x16 sums in fp32 (+)=
// 16 rows of 16 pairs of bf16 numbers times 16 pairs of rows of 16. Activations are bf16 numbers; or floats, each as the sum of
// two bf16 numbers, its upper part and the rest, of whose products three are added, for tf32.
//
//   const AmxKernels& amx = amx_kernels();
//   amx.forward[0].kernel[0](task);
//
// The same source (amx_kernels.inc) is compiled for the instructions (amx_instructions.cpp) and for a software model of
// them (amx_model.cpp), which any processor can run, and which has the bits that Intel documents. Neither has those of the
// kernels with AVX-512's pairs: a tile sums its 32 products before it adds them.
#pragma once

#include <cstdint>

#include "backend/cpu/conv/tiles/conv_kernels.h"

namespace ddp::lanes {

// Rows of a tile, the floats (or pairs) of a row, and those of a tile, which lie one row after the other.
inline constexpr int kAmxRows = 16;
inline constexpr std::int64_t kAmxTile = 256;
// The most output channels of a kernel.
inline constexpr std::int64_t kAmxMostChannels = 48;

// Rows of each of the eight tile registers, from 1 to 16.
struct TileRows {
  std::uint8_t of[8];
};

// y = conv(x, w) + bias of a band of rows of one block of 16 samples. All steps are in floats of the image, of which a
// vector of 16 has a pair of channels of 16 samples; vectors of all pairs of channels of a position lie together, so that
// those of the positions of a row of the window follow each other, and make up tiles. Behind the image are zeros for the
// last tile. In weights the pairs behind a row of the window are zero.
struct AmxForward {
  int kernel_h;
  int steps;               // tiles of a row of the window
  const float* image;      // of the window of the first result
  std::int64_t image_row;  // from a row of the image to the next
  std::int64_t row_step, column_step;
  const float* weights;  // [out_channels/tile.channels][kernel_h][steps][tile.channels/16] tiles, [16 out][16 pairs]
  const float* bias;     // [out_channels] or null
  int out_channels, out_h, out_w;
  // Rows of the image that are not padding, counted from that of the first result, and rows from a result's to the next's.
  int first_row, last_row, stride;
  // Floats of a row of the image that are not padding, counted from the window of the first result.
  std::int64_t first_value, last_value;
  // As in ConvShape, in vectors of 16 values; of pooled results if pooled.
  std::int64_t out_plane, out_row, out_step;
  void* y;              // of bf16 numbers or of floats
  std::uint16_t* mask;  // pooled only: as of ConvForward
};

struct AmxForwardTile {
  int channels, rows, columns;                // of results
  void (*kernel[3])(const AmxForward& task);  // by Epilogue; null if it does not exist
  void (*fp32[3])(const AmxForward& task);    // with results in fp32
};

// Sums of the weight gradient of one row of the window over some rows of results of pairs of blocks of 16 samples, in tiles of
// 16 taps x 16 output channels, where tap s * in_channels + c is of column s and channel c.
//   image     [pairs of blocks][rows][columns][in_channels] vectors of 32 samples in bf16, `image_block` floats apart
//   gradient  [pairs of blocks][tiles of output channels][positions of results] tiles of [16 pairs of samples][16 channels]
//   sums      [tiles of taps][tiles of output channels] tiles, of the kernel
struct AmxGradient {
  int taps;  // of the row of the window; sums of others are undefined
  int pairs;
  int out_h, out_w;
  const float* image;  // of the window's row
  std::int64_t image_block, row_step, column_step;
  const float* gradient;
  std::int64_t gradient_block, gradient_tiles;  // floats between blocks and between tiles of output channels
  float* sums;
  bool accumulate;
};
struct AmxGradientTile {
  int taps, channels;  // tiles of taps and of output channels
  // With 3, the tiles of taps are those of a column of the window and of the two after it, which are the image a position
  // further each: windows with 3 columns a position apart, and columns of whole tiles. Otherwise 1.
  int window;
  // Those from the tile of taps and the tile of output channels with the given indices on.
  void (*kernel)(const AmxGradient& task, int tap_tile, int channel_tile);
};

struct AmxKernels {
  const char* name;
  const AmxForwardTile* forward;
  int forward_tiles;
  const AmxGradientTile* gradient;
  int gradient_tiles;
  // Values of 16 samples at `count` positions, `from_step` values apart, of two channels, which may be null for zeros ->
  // pairs in vectors `to_step` floats apart.
  void (*pair_positions)(const std::uint16_t* lower, const std::uint16_t* upper, std::int64_t count,
                         std::int64_t from_step, float* to, std::int64_t to_step);
  // Values of 16 samples at `count` positions of up to 16 channels, `plane` values apart -> [8 pairs of samples][16
  // channels], `to_step` floats apart; zeros for missing channels.
  void (*transpose_gradient)(const std::uint16_t* dy, std::int64_t plane, int channels, std::int64_t count, float* to,
                             std::int64_t to_step);
  // The same of floats. Three vectors, `part` floats apart: the upper parts, the rests, and the upper parts again.
  void (*split_positions)(const float* lower, const float* upper, std::int64_t count, std::int64_t from_step, float* to,
                          std::int64_t to_step, std::int64_t part);
  // The upper parts, and the rests at `rest`.
  void (*split_gradient)(const float* dy, std::int64_t plane, int channels, std::int64_t count, float* to,
                         std::int64_t to_step, float* rest);
  // Values of 16 samples of one block and of another, which may be null for zeros, at `count` positions, `from_step`
  // values apart -> vectors of both, `to_step` floats apart.
  void (*join_samples)(const std::uint16_t* first, const std::uint16_t* second, std::int64_t count,
                       std::int64_t from_step, float* to, std::int64_t to_step);
  // The same of floats: the upper parts, and the rests at `rest`.
  void (*split_samples)(const float* first, const float* second, std::int64_t count, std::int64_t from_step, float* to,
                        std::int64_t to_step, float* rest);
  // 16 pairs of weights: their upper parts; the rests of the pairs whose bits are set in `rests`.
  void (*round_pairs)(const float* lower, const float* upper, std::uint32_t rests, float* to);
  // The same of 16 pairs of rows of `count` weights, `step` floats from a pair to the next -> for each of the columns its
  // 16 pairs, their upper parts or their rests.
  void (*round_rows)(const float* lower, const float* upper, std::int64_t step, std::int64_t count, bool rests,
                     float* to);
};

// Whether to offer kernels with AMX: if the processor has AMX for bf16, the operating system lets this process use it, and
// DDP_INSTRUCTION_SET is not set, or if that ends in +amx.
bool uses_amx();

// By the instructions; by the software model where there are none, or with DDP_INSTRUCTION_SET=avx2+amx or baseline+amx.
const AmxKernels& amx_kernels();

namespace amx {
const AmxKernels& table();
}
namespace amx_model {
const AmxKernels& table();
}
// Whether this process can execute AMX's instructions for bf16; asks the operating system for permission.
bool has_amx();

}  // namespace ddp::lanes
