// Convolution (+ReLU, +2x2 average pooling) in the lanes16 layout, forward and backward, with kernels of our own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/op.h"

namespace ddp {

// Indices into the tables of lanes::Kernels; -1 for the data gradient of a convolution without one.
struct LanesConvTiles {
  int forward = 0;
  int data = -1;
  int weights = 0;
};

// Whether the lanes16 kernels cover the convolution (stride 1).
bool lanes_conv_supported(const ConvSpec& spec);

// The tiles that can compute the convolution, each direction on its own.
std::vector<int> lanes_forward_candidates(const ConvSpec& spec);
std::vector<int> lanes_data_candidates(const ConvSpec& spec);
std::vector<int> lanes_weights_candidates(const ConvSpec& spec);
// The tiles that waste the least, by a rule of shapes and registers alone.
LanesConvTiles lanes_fixed_tiles(const ConvSpec& spec);

// "forward=lanes.5x2x2 data=lanes.10x1x2 weights=lanes.5x5" and back; Error(preflight) for tiles unknown here.
std::string to_text(const LanesConvTiles& tiles);
LanesConvTiles lanes_tiles_from_text(const ConvSpec& spec, const std::string& kernels);

std::unique_ptr<Op> make_lanes_conv(const ConvSpec& spec, const LanesConvTiles& tiles);

}  // namespace ddp
