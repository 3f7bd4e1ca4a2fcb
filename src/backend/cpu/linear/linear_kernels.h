// Kernels of linear layers in lanes16, compiled once for each instruction set.
//
//   const lanes::LinearKernels& kernels = lanes::linear_kernels();
//   kernels.forward({.blocks = 4, .inputs = 400, .outputs = 120}, x, w, bias, true, y, tile);
#pragma once

#include <cstdint>

namespace ddp::lanes {

inline constexpr int kLinearTile = 4;

// Linear: blocks of 16 samples x [blocks][inputs][16], w [outputs][inputs].
struct LinearShape {
  int blocks;
  int inputs;
  int outputs;
};
// y[block][o][16] for the output tile with the given index.
using LinearForward = void (*)(const LinearShape& shape, const float* x, const float* w, const float* bias, bool relu,
                               float* y, int output_tile);
// dx[block][i][16] for the input tile with the given index.
using LinearData = void (*)(const LinearShape& shape, const float* dy, const float* w, float* dx, int input_tile);
// dw[o][i], db[o] for the output tile with the given index (all inputs).
using LinearWeights = void (*)(const LinearShape& shape, const float* x, const float* dy, float* dw, int output_tile);

struct LinearKernels {
  LinearForward forward;
  LinearData data;
  LinearWeights weights;
};

const LinearKernels& linear_kernels();

}  // namespace ddp::lanes
