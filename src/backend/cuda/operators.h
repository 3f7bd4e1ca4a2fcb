// The operators on a GPU; each file named here implements one kind. All work goes to the context's stream.
//
//   std::unique_ptr<Op> op = make_cuda_conv(context, spec, kernels);
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <memory>

#include "backend/cuda/conv_plans.h"
#include "backend/cuda/element.h"
#include "backend/op.h"

namespace ddp::cuda {

// Shared by all operators of a backend, which owns the handles and outlives its operators.
struct CudaContext {
  cudaStream_t stream = nullptr;
  cudnnHandle_t cudnn = nullptr;
  cublasLtHandle_t cublas = nullptr;
  Precision precision = Precision::fp32;
  bool deterministic = false;
  // In place of the stream and the handles where the GPU is only described: operators are made, and never run.
  const Descriptor* described = nullptr;

  PlanTarget plan_target() const { return {cudnn, described}; }
  Element element() const { return element_of(precision); }
};

// conv.cpp: x and y in nhwc, by cuDNN, with our own kernels for depthwise convolutions, bias, ReLU and pooling.
std::unique_ptr<Op> make_cuda_conv(const CudaContext& context, const ConvSpec& spec, const ConvKernels& kernels);
// own_conv.cpp: x and y in nhwc, by our own kernels (conv_mma.h), if they support the shape.
std::unique_ptr<Op> make_mma_conv(const CudaContext& context, const ConvSpec& spec);
// linear.cpp: x and y plain, by cuBLASLt.
std::unique_ptr<Op> make_cuda_linear(const CudaContext& context, const LinearSpec& spec);
// batch_norm.cpp: plain or nhwc, the same on both sides.
std::unique_ptr<Op> make_cuda_batch_norm(const CudaContext& context, const BatchNormSpec& spec, Layout layout);
// gelu.cu: plain or nhwc, the same on both sides.
std::unique_ptr<Op> make_cuda_gelu(const CudaContext& context, const GeluSpec& spec);
// simple_ops.cpp: plain or nhwc, the same on both sides; a reorder from one to the other.
std::unique_ptr<Op> make_cuda_activation(const CudaContext& context, const ActivationSpec& spec);
std::unique_ptr<Op> make_cuda_add(const CudaContext& context, const AddSpec& spec);
std::unique_ptr<Op> make_cuda_pool(const CudaContext& context, const PoolSpec& spec, Layout layout);
std::unique_ptr<Op> make_cuda_lrn(const CudaContext& context, const LrnSpec& spec, Layout layout);
std::unique_ptr<Op> make_cuda_dropout(const CudaContext& context, const DropoutSpec& spec, Layout layout);
std::unique_ptr<Op> make_cuda_reorder(const CudaContext& context, const ReorderSpec& spec, Layout from, Layout to);
// In nhwc.
std::unique_ptr<Op> make_cuda_channels_last(const CudaContext& context, const ChannelsLastSpec& spec);

}  // namespace ddp::cuda
