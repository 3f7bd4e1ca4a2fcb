// The trace of a GPU by the activity records of CUPTI, NVIDIA's profiling library, which is opened at run time.
//
//   std::unique_ptr<GpuTrace> trace = cuda::start_cupti_trace();
//
// The library is libcupti.so of the CUDA version of this build, or the file in DDP_CUPTI_LIBRARY.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "backend/gpu_trace.h"

namespace ddp::cuda {

// How many of the last kernels, copies and fills are kept: about 100 steps of a ResNet.
inline constexpr std::size_t kTracedSpans = 32768;

// Throws Error(preflight) if the library is missing or refuses, for example because another profiler uses it. One trace at a time.
std::unique_ptr<GpuTrace> start_cupti_trace(std::size_t most = kTracedSpans);

// The name of a kernel without return type and arguments, shortened: "ddp::pool<4>" of its mangled name.
std::string kernel_name(const char* mangled);

}  // namespace ddp::cuda
