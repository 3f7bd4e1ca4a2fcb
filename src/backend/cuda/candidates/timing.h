// Finds the fastest kernels of convolutions by running them on the device.
//
//   ConvKernels kernels = fastest_conv_kernels(device, context, spec);
#pragma once

#include <span>

#include "backend/backend.h"
#include "backend/cuda/vendor/context.h"
#include "backend/cuda/vendor/conv_plans.h"

namespace ddp::cuda {

// The fastest for each direction among our own kernel, if there is one, and cuDNN's most promising plans. A kernel that
// fails, or whose result differs from conv_check.h's reference, is skipped with a log line; if plans disagree
// elsewhere, our own or cuDNN's first is taken as correct. Temporarily allocates memory of the backend.
ConvKernels fastest_conv_kernels(const DeviceContext& device, const CudaContext& context, const ConvSpec& spec);

// Without timing, for each direction: our own kernel, or the first of cuDNN's plans that fits, runs and computes the
// correct result.
ConvKernels first_conv_kernels(const DeviceContext& device, const CudaContext& context, const ConvSpec& spec);

// Without trying any, for a GPU that is only described: our own kernel, or the first plan that cuDNN names.
ConvKernels expected_conv_kernels(const CudaContext& context, const ConvSpec& spec);

// An estimate without running it, from memory traffic and multiply-adds.
double guessed_seconds(std::span<const OpSpec> specs, const CudaContext& context);

}  // namespace ddp::cuda
