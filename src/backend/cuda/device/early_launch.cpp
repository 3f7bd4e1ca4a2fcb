#include "backend/cuda/device/early_launch.h"

#include <utility>
#include <vector>

#include "backend/cuda/device/check.h"
#include "backend/cuda/device/recording.h"
#include "base/error.h"

namespace ddp::cuda {
namespace {

constexpr int kSteps = 6;  // even: the values end where they were
constexpr int kRecorded = 2;

bool early = false;  // a process uses one GPU

void enqueue_steps(cudaStream_t stream, std::uint32_t* values) {
  std::uint32_t* from = values;
  std::uint32_t* to = values + kEarlyValues;
  for (int step = 0; step < kSteps; ++step) {
    mix_values(stream, from, to);
    std::swap(from, to);
  }
}

std::vector<std::uint32_t> expected_values(std::vector<std::uint32_t> values) {
  for (int step = 0; step < (1 + kRecorded) * kSteps; ++step) {
    std::vector<std::uint32_t> next(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) next[i] = values[values.size() - 1 - i] * kMixFactor + 1;
    values = std::move(next);
  }
  return values;
}

// As single launches, then as a graph.
bool computes_right(cudaStream_t stream, std::uint32_t* values) {
  std::vector<std::uint32_t> host(kEarlyValues);
  for (std::uint32_t i = 0; i < kEarlyValues; ++i) host[i] = i;
  const std::size_t bytes = host.size() * sizeof(std::uint32_t);
  DDP_CUDA(cudaMemcpyAsync(values, host.data(), bytes, cudaMemcpyHostToDevice, stream));
  enqueue_steps(stream, values);
  const GraphExec recording = record_repetitions(
      stream, [&] { enqueue_steps(stream, values); }, kRecorded);
  if (recording.get() == nullptr) throw Error(ExitCode::preflight, "a trial cannot be recorded as a CUDA graph");
  DDP_CUDA(cudaGraphLaunch(recording.get(), stream));
  std::vector<std::uint32_t> result(kEarlyValues);
  DDP_CUDA(cudaMemcpyAsync(result.data(), values, bytes, cudaMemcpyDeviceToHost, stream));
  DDP_CUDA(cudaStreamSynchronize(stream));
  return result == expected_values(std::move(host));
}

}  // namespace

std::string try_early_launch(cudaStream_t stream, void* memory) {
  std::string reason = "a trial computed wrong values";
  early = true;
  try {
    if (computes_right(stream, static_cast<std::uint32_t*>(memory))) return "";
  } catch (const Error& error) {
    reason = error.what();
    static_cast<void>(cudaGetLastError());
  }
  early = false;
  return reason;
}

bool kernels_start_early() { return early; }

}  // namespace ddp::cuda
