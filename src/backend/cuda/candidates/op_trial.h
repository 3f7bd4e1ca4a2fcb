// Runs operators on random values: to time them, and to compare an operator that computes several (OpJoiner::join()) with these.
//
//   double seconds = op_seconds(device, context, {&spec, 1}, *op);   // one forward and backward pass
//   if (agrees_with_separate(device, context, specs, *joined)) seconds = op_seconds(device, context, specs, *joined);
#pragma once

#include <functional>
#include <span>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/vendor/context.h"

namespace ddp::cuda {

// Purpose of the memory that trials of kernels allocate.
inline constexpr const char* kTrialPurpose = "the trials of kernels";
// Random values; tensors that are multiplied with one another have different seeds.
Memory filled(const DeviceContext& device, const CudaContext& context, Element element, std::int64_t count,
              std::uint32_t seed = 0);
// Runs `run` and waits for it. If it fails but the GPU recovers, logs a line that names the kernels and returns false; if the GPU
// is lost, throws an error naming them.
bool attempt(cudaStream_t stream, const std::string& name, const std::function<void()>& run);

// Seconds of one forward and one backward pass, of an operator with one spec or several.
double op_seconds(const DeviceContext& device, const CudaContext& context, std::span<const OpSpec> specs, Op& op);

// Whether an operator of several runs, and computes what these compute one after the other in nhwc with the kernels that cuDNN
// expects to be the fastest; otherwise logs a line. Without memory to tell it is taken to do so.
bool agrees_with_separate(const DeviceContext& device, const CudaContext& context, std::span<const OpSpec> specs,
                          Op& op);

// The same of an operator in fp32 or tf32 with kernels `own`, beside a library's: cuDNN's kernels `library`, or cuBLASLt.
bool agrees_with_library(const DeviceContext& device, const CudaContext& context, OpSpec spec, const std::string& own,
                         const std::string& library);

}  // namespace ddp::cuda
