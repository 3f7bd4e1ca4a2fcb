// Gradients of a linear layer with few outputs, in one kernel: libraries have no efficient kernels for rows of, say, 10
// elements. The order of additions depends only on shapes.
//
//   if (takes_small_gradient(spec)) small_gradient(stream, element, spec, dy, x, weight_gradient, bias_gradient);
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/device/element.h"
#include "backend/op.h"

namespace ddp::cuda {

// For rows of outputs that are not multiples of 16 bytes, the vector size of kernels for large products.
bool takes_small_gradient(const LinearSpec& spec);
// weight_gradient = dpre^T x, bias_gradient = the sums of dpre's columns; a null bias_gradient is skipped.
void small_gradient(cudaStream_t stream, Element element, const LinearSpec& spec, const void* dpre, const void* x,
                    float* weight_gradient, float* bias_gradient);

}  // namespace ddp::cuda
