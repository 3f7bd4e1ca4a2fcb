#include "backend/cuda/device/recording.h"

#include <algorithm>
#include <limits>

#include "backend/cuda/device/check.h"
#include "base/error.h"

namespace ddp::cuda {
namespace {

// A measurement consists of this many consecutive runs, or of as many as take this long individually.
constexpr int kRepetitions = 20;
constexpr double kLongEnough = 500e-6;
constexpr int kMeasurements = 5;

}  // namespace

GraphExec record_repetitions(cudaStream_t stream, const std::function<void()>& run, int repetitions) {
  DDP_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  bool complete = true;
  try {
    for (int i = 0; i < repetitions; ++i) run();
  } catch (const Error&) {
    complete = false;
  }
  cudaGraph_t captured = nullptr;
  complete &= cudaStreamEndCapture(stream, &captured) == cudaSuccess;
  const Graph graph(captured);
  cudaGraphExec_t exec = nullptr;
  if (complete && cudaGraphInstantiate(&exec, graph.get(), 0) == cudaSuccess) return GraphExec(exec);
  static_cast<void>(cudaGetLastError());
  return {};
}

double fastest_seconds(cudaStream_t stream, const std::function<void()>& run) {
  const Event begin;
  const Event end;
  const auto seconds_of = [&](const std::function<void()>& work) {
    DDP_CUDA(cudaEventRecordWithFlags(begin.get(), stream, cudaEventRecordDefault));
    work();
    DDP_CUDA(cudaEventRecordWithFlags(end.get(), stream, cudaEventRecordDefault));
    DDP_CUDA(cudaStreamSynchronize(stream));
    float milliseconds = 0;
    DDP_CUDA(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
    return static_cast<double>(milliseconds) / 1000;
  };
  run();  // loads the code, which is not allowed during capture
  const double plain = std::min(seconds_of(run), seconds_of(run));
  const int repetitions = plain * kRepetitions < kLongEnough ? kRepetitions : 1 + static_cast<int>(kLongEnough / plain);
  const GraphExec recording = record_repetitions(stream, run, repetitions);
  const auto repeat = [&] {
    if (recording.get() != nullptr) {
      DDP_CUDA(cudaGraphLaunch(recording.get(), stream));
    } else {
      for (int i = 0; i < repetitions; ++i) run();
    }
  };
  repeat();  // uploads the graph to the device
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i < kMeasurements; ++i) best = std::min(best, seconds_of(repeat) / repetitions);
  return best;
}

}  // namespace ddp::cuda
