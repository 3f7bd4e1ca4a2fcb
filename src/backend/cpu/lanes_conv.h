// Convolution (+ReLU, +2x2 average pooling) in the lanes16 layout, forward and backward, with kernels of our own: of
// any stride and number of groups, and a simpler one for depthwise convolutions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/lanes_kernels.h"
#include "backend/op.h"

namespace ddp {

// Indices into the tables of lanes::Kernels; -1 for the data gradient of a convolution without one.
struct LanesConvTiles {
  int forward = 0;
  int data = -1;
  int weights = 0;
};

// Whether the lanes16 kernels cover the convolution: all but a pooled one with stride.
bool lanes_conv_supported(const ConvSpec& spec);

// The tiles that can compute the convolution, each direction on its own.
std::vector<int> lanes_forward_candidates(const ConvSpec& spec);
std::vector<int> lanes_data_candidates(const ConvSpec& spec);
std::vector<int> lanes_weights_candidates(const ConvSpec& spec);
// The tiles that waste the least, by a rule of shapes and registers alone.
LanesConvTiles lanes_fixed_tiles(const ConvSpec& spec);

// What the forward kernels do with a result before they write it.
lanes::Epilogue epilogue_of(const ConvSpec& spec);
// The kernel of a tile for a stride; null where there is none.
lanes::ConvForward forward_kernel(const lanes::ForwardTile& tile, int stride, lanes::Epilogue last);

// "forward=lanes.5x2x2 data=lanes.10x1x2 weights=lanes.5x5" and back; Error(preflight) for tiles unknown here.
std::string to_text(const LanesConvTiles& tiles);
LanesConvTiles lanes_tiles_from_text(const ConvSpec& spec, const std::string& kernels);

std::unique_ptr<Op> make_lanes_conv(const ConvSpec& spec, const LanesConvTiles& tiles);

// lanes_depthwise.cpp: each output channel reads the one input channel of its number, and nothing follows.
inline constexpr const char* kLanesDepthwise = "lanes.depthwise";
bool lanes_depthwise_supported(const ConvSpec& spec);
std::unique_ptr<Op> make_lanes_depthwise(const ConvSpec& spec);

}  // namespace ddp
