// Small linear layers on tensor cores: one kernel forward and one backward, including bias and ReLU, and the loss of
// the last layer, where a library uses several kernels.
//
// Note [Tiles of a product]
// A block of 8 warps computes 32 x 32 values of a product. Each warp takes a part of the depth: in every 256 of it two steps of
// 16, forward adjacent ones and backward one in each half, for which it copies slices of both factors to shared memory, on its
// own: such layers are so small that a kernel takes about as long as its loads that wait for one another, and as loading its
// code. So loops are not unrolled, and both products of backward share their code. A factor whose rows are the depth is
// transposed on the way to the registers. In the end the sums of the warps are added. The order of additions depends only on
// shapes.
//   forward   [samples][inputs] x [outputs][inputs]^T
//   data      [samples][outputs] x [outputs][inputs]
//   weights   [samples][outputs]^T x [samples][inputs]; one more column of x, of ones, gives the bias's gradient
//
// Activations in fp32 are divided as Note [Parts] in parts.h says.
//
//   if (linear_mma_takes(spec)) linear_mma_forward(stream, spec, parts_of(precision), {.x = x, .packed = packed, .bias = bias, .y = y});
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/op.h"

namespace ddp::cuda {

// Whether the kernels support the layer.
bool linear_mma_takes(const LinearSpec& spec);
// Whether it is so small that starting kernels takes most of the time of a library's.
bool linear_mma_is_small(const LinearSpec& spec);
// Whether forward computes the loss too: its blocks have all logits of their samples.
bool linear_mma_takes_loss(const LinearSpec& spec);

// The form of the weights that both kernels read. `positions`: of the images that x contains in nhwc, otherwise 1.
PackedShape linear_mma_packed(const LinearSpec& spec, std::int64_t positions);

struct LinearMmaForward {
  const void* x = nullptr;
  const void* packed = nullptr;
  const float* bias = nullptr;  // null: 0
  void* y = nullptr;
  const ForwardArguments* loss = nullptr;  // the pass with the loss of y; null: it is not computed
  double* partial_loss = nullptr;          // with a loss, scratch of linear_mma_partial_loss(spec)
};
std::int64_t linear_mma_partial_loss(const LinearSpec& spec);
void linear_mma_forward(cudaStream_t stream, const LinearSpec& spec, std::uint32_t parts,
                        const LinearMmaForward& arguments);

struct LinearMmaBackward {
  const void* x = nullptr;
  const void* y = nullptr;  // with ReLU
  const void* dy = nullptr;
  const void* packed = nullptr;
  std::int64_t positions = 1;  // as for linear_mma_packed()
  float* weight_gradient = nullptr;
  float* bias_gradient = nullptr;  // null: there is no bias
  void* dx = nullptr;              // if the spec has an input gradient
};
void linear_mma_backward(cudaStream_t stream, const LinearSpec& spec, std::uint32_t parts,
                         const LinearMmaBackward& arguments);

}  // namespace ddp::cuda
