// Which kernels are the fastest, found by running them on the device.
//
//   ConvKernels kernels = fastest_conv_kernels(queue, context, spec);
//   double seconds = op_seconds(queue, context, spec, x_layout, y_layout, *op);   // a step of it
#pragma once

#include <functional>

#include "backend/backend.h"
#include "backend/cuda/operators.h"

namespace ddp::cuda {

// Seconds that the device takes for one `run`, which enqueues work on the stream: the least of some measurements, each
// of a recorded row of runs, since the host enqueues small kernels slower than a GPU runs them. What cannot be recorded
// is enqueued run by run.
double fastest_seconds(cudaStream_t stream, const std::function<void()>& run);

// The fastest for each direction, of our own kernel, if there is one, and the plans that cuDNN expects most of. One
// that does not run, or that computes something else than conv_check.h's reference, is left out, with a line in the
// log; of plans that disagree elsewhere, our own or the first that cuDNN names is believed. Takes memory of the backend
// meanwhile.
ConvKernels fastest_conv_kernels(DeviceQueue& queue, const CudaContext& context, const ConvSpec& spec);

// Without timing any: our own kernel, or the first plan that cuDNN names, if it fits, runs and computes what it should,
// for each direction.
ConvKernels first_conv_kernels(DeviceQueue& queue, const CudaContext& context, const ConvSpec& spec);

// Seconds of one forward and one backward pass.
double op_seconds(DeviceQueue& queue, const CudaContext& context, const OpSpec& spec, Op& op);

// The same without running it: from the memory that it moves and its multiply-adds.
double guessed_seconds(const OpSpec& spec, const CudaContext& context);

}  // namespace ddp::cuda
