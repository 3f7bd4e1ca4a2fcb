// Convolution (+ReLU, +2x2 average pooling) in the lanes16 layout, forward and backward, with own kernels for any
// stride and number of groups, and a simpler one for depthwise convolutions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/amx_kernels.h"
#include "backend/cpu/lanes_block_conv.h"
#include "backend/cpu/lanes_kernels.h"
#include "backend/cpu/lanes_winograd.h"
#include "backend/op.h"

namespace ddp {

// Indices into the tables of lanes::Kernels; -1 for the data gradient of a convolution without one. For the weight
// gradient the outer tiles follow the others, and then the outer tiles for each form of Winograd's algorithm. Last come
// the tiles with AMX (lanes_amx.h), for bf16 and tf32.
struct LanesConvTiles {
  int forward = 0;
  int data = -1;
  int weights = 0;
};

// Winograd's algorithm follows the forward tiles, for each of its forms once for each tile that computes its products
// (lanes_winograd.h). The form of such a tile; in bf16 only that of 2x2 results of windows of 3x3 multiplies pairs.
bool is_winograd(int tile);
WinogradForm winograd_form(int tile, Element element);
bool is_winograd_weights(int tile);
WinogradForm winograd_weights_form(int tile, Element element);
// The tile itself, or that of the products of Winograd's algorithm.
const lanes::OuterTile& outer_tile(int tile);
const lanes::ForwardTile& forward_tile(int tile, Element element);

bool is_amx(int tile);
bool is_amx_weights(int tile);
const lanes::AmxForwardTile& amx_tile(int tile);
const lanes::AmxGradientTile& amx_gradient_tile(int tile);
// Those that can compute the convolution, on any processor: by the software model where there is no AMX.
std::vector<int> amx_forward_tiles(const ConvSpec& spec);
std::vector<int> amx_data_tiles(const ConvSpec& spec);
std::vector<int> amx_weights_tiles(const ConvSpec& spec);

// Whether the lanes16 kernels support the convolution: all except pooling with stride.
bool lanes_conv_supported(const ConvSpec& spec);

// The tiles that can compute the convolution, separately for each direction; on request also those with AMX.
std::vector<int> lanes_forward_candidates(const ConvSpec& spec, bool with_amx = false);
std::vector<int> lanes_data_candidates(const ConvSpec& spec, bool with_amx = false);
std::vector<int> lanes_weights_candidates(const ConvSpec& spec, bool with_amx = false);
// Those worth timing: the few that a cost model finds cheapest.
std::vector<int> lanes_forward_shortlist(const ConvSpec& spec, bool with_amx = false);
std::vector<int> lanes_data_shortlist(const ConvSpec& spec, bool with_amx = false);
std::vector<int> lanes_weights_shortlist(const ConvSpec& spec, Element element = Element::fp32, bool with_amx = false);
// Whether the data gradient is the same work as the forward convolution, so that the same tile is fastest.
bool lanes_data_is_like_forward(const ConvSpec& spec);
// The tiles with the least wasted work, by a rule that depends only on shapes and registers; never Winograd's, and
// never with AMX, so that they compute the same bits on processors with and without it.
LanesConvTiles lanes_fixed_tiles(const ConvSpec& spec, Element element = Element::fp32);
// Those that are expected to be the fastest, by such a rule: the cheapest with AMX where this is asked for and possible, otherwise
// those of Winograd's algorithm with the fewest products where it saves many, or the cheapest others.
LanesConvTiles lanes_expected_tiles(const ConvSpec& spec, Element element = Element::fp32, bool with_amx = false);

// The memory of a direction that has its own kernels, AMX or Winograd's.
struct DirectionMemory {
  float* packed;   // weights
  float* scratch;  // of the first thread; the others follow at distances of scratch_size floats
  std::int64_t scratch_size;
};

// The operation that forward kernels apply to results before writing them.
lanes::Epilogue epilogue_of(const ConvSpec& spec);
// The kernel of a tile for a stride; null if there is none.
lanes::ConvForward forward_kernel(const lanes::ForwardTile& tile, int stride, bool pooled = false);

// "forward=lanes.5x2x2 data=lanes.10x1x2 weights=lanes.5x5" and back; throws Error(preflight) for unknown tiles.
std::string to_text(const LanesConvTiles& tiles);
LanesConvTiles lanes_tiles_from_text(const ConvSpec& spec, const std::string& kernels, bool with_amx = false);

// On fp32 activations; tiles with AMX multiply as tf32 does, or more precisely.
std::unique_ptr<BlockConv> make_lanes_conv(const ConvSpec& spec, const LanesConvTiles& tiles);
// lanes_bf16_conv.cpp: on bf16 activations, with products of pairs of bf16 numbers, or of tiles of them.
std::unique_ptr<BlockConv> make_lanes_bf16_conv(const ConvSpec& spec, const LanesConvTiles& tiles);

// The names of kernels with pairs of bf16 numbers, "forward=bf16.5x1x2 data=bf16.10x1x2 weights=bf16.5x5", and back.
std::string bf16_text(const LanesConvTiles& tiles);
bool is_bf16_text(const std::string& kernels);
LanesConvTiles bf16_tiles_from_text(const ConvSpec& spec, const std::string& kernels);

// lanes_depthwise.cpp: each output channel reads the input channel with the same index; no epilogue.
inline constexpr const char* kLanesDepthwise = "lanes.depthwise";
bool lanes_depthwise_supported(const ConvSpec& spec);
std::unique_ptr<Op> make_lanes_depthwise(const ConvSpec& spec);
// On bf16 activations, with products of pairs in the weight gradient.
std::unique_ptr<Op> make_lanes_bf16_depthwise(const ConvSpec& spec);

}  // namespace ddp
