// The functions of CUDA's runtime that a backend needs beyond stand_ins/cuda/runtime.cpp: one GPU with 64 GiB,
// page-locked memory, and timing events.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "stand_ins/cuda/runtime.h"
#include "stand_ins/gpu/engines.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kTotal = std::size_t{64} << 30U;

// When each event was last reached.
struct Times {
  std::mutex mutex;
  std::map<cudaEvent_t, Clock::time_point> reached;
};

Times& times() {
  static Times all;
  return all;
}

}  // namespace

extern "C" {

cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return cudaErrorInvalidDevice;
  *properties = {};
  static_cast<void>(std::snprintf(properties->name, sizeof properties->name, "Stand-in GPU"));
  properties->totalGlobalMem = kTotal;
  properties->major = 9;
  properties->multiProcessorCount = 1;
  properties->l2CacheSize = 4096;                                // so small that tests have activations that exceed it
  properties->sharedMemPerBlockOptin = std::size_t{163} << 10U;  // as compute capability 8.0
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int /*device*/) {
  static_cast<void>(std::snprintf(id, static_cast<std::size_t>(length), "0000:0A:00.0"));
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = kTotal - ddp::stand_in::kContextBytes - ddp::testing::allocated_bytes();
  *total = kTotal;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned /*flags*/) {
  *memory = std::malloc(bytes);
  std::memset(*memory, 0xFF, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (const cudaError_t error = cudaStreamIsCapturing(stream, &status); error != cudaSuccess) return error;
  // During capture, only external events support timing.
  if (status != cudaStreamCaptureStatusNone && flags != cudaEventRecordExternal) return cudaErrorInvalidValue;
  ddp::testing::enqueue(stream, "mark", [event] {
    const std::lock_guard lock(times().mutex);
    times().reached[event] = Clock::now();
  });
  return status == cudaStreamCaptureStatusNone ? cudaEventRecord(event, stream) : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::lock_guard lock(times().mutex);
  const auto from = times().reached.find(begin);
  const auto to = times().reached.find(end);
  if (from == times().reached.end() || to == times().reached.end()) return cudaErrorInvalidResourceHandle;
  *milliseconds = std::chrono::duration<float, std::milli>(to->second - from->second).count();
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t /*exec*/, cudaStream_t /*stream*/) { return cudaSuccess; }

}  // extern "C"
