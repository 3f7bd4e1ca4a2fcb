// Work on a stream as a CUDA graph, run several times, and how long it takes.
//
//   double seconds = fastest_seconds(stream, [&] { kernel->execute(pointers, workspace); });
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "backend/cuda/device/handles.h"

namespace ddp::cuda {

// `repetitions` consecutive runs as a CUDA graph; empty if they cannot be captured.
GraphExec record_repetitions(cudaStream_t stream, const std::function<void()>& run, int repetitions);

// Device time in seconds of one `run`, which enqueues work on the stream: the minimum of several measurements, each of
// a captured sequence of runs, because enqueueing small kernels takes the host longer than the GPU takes to run them.
// Work that cannot be captured is enqueued run by run.
double fastest_seconds(cudaStream_t stream, const std::function<void()>& run);

}  // namespace ddp::cuda
