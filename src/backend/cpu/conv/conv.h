// Convolution (+ReLU, +2x2 average pooling) in the lanes16 layout, forward and backward, with own kernels for any
// stride and number of groups, and a simpler one for depthwise convolutions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/conv/tiles/tile.h"
#include "backend/op.h"

namespace ddp {

// Those with AMX that can compute the convolution, on any processor: by the software model where there is no AMX.
std::vector<ConvTile> amx_forward_tiles(const ConvSpec& spec);
std::vector<ConvTile> amx_data_tiles(const ConvSpec& spec);
std::vector<WeightTile> amx_weights_tiles(const ConvSpec& spec);

// Whether the lanes16 kernels support the convolution: all except pooling with stride.
bool lanes_conv_supported(const ConvSpec& spec);

// The tiles that can compute the convolution, separately for each direction; on request also those with AMX.
std::vector<ConvTile> lanes_forward_candidates(const ConvSpec& spec, bool with_amx = false);
std::vector<ConvTile> lanes_data_candidates(const ConvSpec& spec, bool with_amx = false);
std::vector<WeightTile> lanes_weights_candidates(const ConvSpec& spec, bool with_amx = false);
// Those worth timing: the few that a cost model finds cheapest.
std::vector<ConvTile> lanes_forward_shortlist(const ConvSpec& spec, bool with_amx = false);
std::vector<ConvTile> lanes_data_shortlist(const ConvSpec& spec, bool with_amx = false);
std::vector<WeightTile> lanes_weights_shortlist(const ConvSpec& spec, Element element = Element::fp32,
                                                bool with_amx = false);
// Whether the data gradient is the same work as the forward convolution, so that the same tile is fastest.
bool lanes_data_is_like_forward(const ConvSpec& spec);
// The tiles with the least wasted work, by a rule that depends only on shapes and registers; never Winograd's, and
// never with AMX, so that they compute the same bits on processors with and without it.
LanesConvTiles lanes_fixed_tiles(const ConvSpec& spec, Element element = Element::fp32);
// Those that are expected to be the fastest, by such a rule: the cheapest with AMX where this is asked for and possible, otherwise
// those of Winograd's algorithm with the fewest products where it saves many, or the cheapest others.
LanesConvTiles lanes_expected_tiles(const ConvSpec& spec, Element element = Element::fp32, bool with_amx = false);

// "forward=lanes.5x2x2 data=lanes.10x1x2 weights=lanes.5x5" and back; throws Error(preflight) for unknown tiles.
std::string to_text(const LanesConvTiles& tiles);
LanesConvTiles lanes_tiles_from_text(const ConvSpec& spec, const std::string& kernels, bool with_amx = false);

// On fp32 activations; tiles with AMX multiply as tf32 does, or more precisely.
std::unique_ptr<Op> make_lanes_conv(const ConvSpec& spec, const LanesConvTiles& tiles);
// On bf16 activations, with products of pairs of bf16 numbers, or of tiles of them.
std::unique_ptr<Op> make_lanes_bf16_conv(const ConvSpec& spec, const LanesConvTiles& tiles);

// The names of kernels with pairs of bf16 numbers, "forward=bf16.5x1x2 data=bf16.10x1x2 weights=bf16.5x5", and back.
std::string bf16_text(const LanesConvTiles& tiles);
bool is_bf16_text(const std::string& kernels);
LanesConvTiles bf16_tiles_from_text(const ConvSpec& spec, const std::string& kernels);

}  // namespace ddp
