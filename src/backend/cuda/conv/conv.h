// Convolutions in nhwc, by plans of cuDNN or by our own kernels; and what a network's weights are packed by.
//
//   std::unique_ptr<Op> op = make_cuda_conv(context, spec, kernels);
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/cuda/conv/conv_mma.h"
#include "backend/cuda/conv/stem_conv.h"
#include "backend/cuda/device/element.h"
#include "backend/cuda/vendor/context.h"
#include "backend/cuda/vendor/conv_kernel.h"
#include "backend/cuda/vendor/conv_plans.h"
#include "backend/cuda/vendor/conv_problem.h"
#include "backend/op.h"
#include "backend/weight_packing.h"

namespace ddp::cuda {

// Converts weights from PyTorch's [K][C][RS] to [K][RS][C] or to fragments, and gradients back.

void pack_weights(cudaStream_t stream, const float* weights, Element element, void* packed, const PackedShape& shape);
void unpack_weights(cudaStream_t stream, Element element, const void* packed, float* weights, const PackedShape& shape);
// The same for any number of them, with kPackedAtOnce by one kernel.
inline constexpr std::size_t kPackedAtOnce = 64;
void pack_weights(cudaStream_t stream, Element element, std::span<const WeightPacking> all);
void unpack_weights(cudaStream_t stream, Element element, std::span<const WeightPacking> all);

// Depthwise convolutions with windows of 3x3 and 5x5, strides 1 and 2, any
// padding, with vectors of 16 bytes of channels; sums in fp32.

bool depthwise_supports(Element element, const ConvSpec& spec);
std::size_t depthwise_workspace_bytes(const ConvProblem& problem);
void depthwise(cudaStream_t stream, const ConvProblem& problem, const ConvPointers& tensors, void* workspace);
// Called by depthwise() for the weight gradient.
void depthwise_weights(cudaStream_t stream, const ConvProblem& problem, const ConvPointers& tensors, float* partial);

// The kernel of a plan. Throws Error(preflight) if there is no such kernel for this convolution on this GPU.
std::unique_ptr<ConvKernel> make_conv_kernel(const CudaContext& context, const ConvProblem& problem,
                                             const EngineChoice& choice);
// Our own kernel; null if it does not support this convolution.
std::unique_ptr<ConvKernel> make_own_conv_kernel(const CudaContext& context, const ConvProblem& problem);

// The operators. With our own kernels for depthwise convolutions, bias, ReLU and pooling.
std::unique_ptr<Op> make_cuda_conv(const CudaContext& context, const ConvSpec& spec, const ConvKernels& kernels);
// With the kernels of spec.mirror().
std::unique_ptr<Op> make_cuda_conv_transpose(const CudaContext& context, const ConvTransposeSpec& spec,
                                             const ConvKernels& kernels);
// By our own kernels of few channels (conv_mma.h), and of images (stem_conv.h), if they support the shape.
std::unique_ptr<Op> make_mma_conv(const CudaContext& context, const ConvSpec& spec);
std::unique_ptr<Op> make_stem_conv(const CudaContext& context, const ConvSpec& spec);

}  // namespace ddp::cuda
