#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace ddp::cuda {
namespace {

// Where packed element `index` of [K][taps][C] lies in [K][C][taps].
__device__ std::uint32_t plain_index(std::uint32_t index, std::uint32_t channels, std::uint32_t taps) {
  const std::uint32_t channel = index % channels;
  const std::uint32_t tap = index / channels % taps;
  const std::uint32_t output = index / channels / taps;
  return (output * channels + channel) * taps + tap;
}

template <class T>
__global__ void pack_kernel(const float* weights, T* packed, std::size_t count, std::uint32_t channels,
                            std::uint32_t taps) {
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    put(packed, i, weights[plain_index(static_cast<std::uint32_t>(i), channels, taps)]);
  }
}

template <class T>
__global__ void unpack_kernel(const T* packed, float* weights, std::size_t count, std::uint32_t channels,
                              std::uint32_t taps) {
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    weights[plain_index(static_cast<std::uint32_t>(i), channels, taps)] = get(packed, i);
  }
}

}  // namespace

void pack_weights(cudaStream_t stream, const float* weights, Element element, void* packed, std::int64_t outputs,
                  std::int64_t channels, std::int64_t taps) {
  const std::int64_t count = outputs * channels * taps;
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(count), kThreads, pack_kernel<T>, weights, as<T>(packed), count, channels, taps);
  });
}

void unpack_weights(cudaStream_t stream, Element element, const void* packed, float* weights, std::int64_t outputs,
                    std::int64_t channels, std::int64_t taps) {
  const std::int64_t count = outputs * channels * taps;
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(count), kThreads, unpack_kernel<T>, as<T>(packed), weights, count, channels, taps);
  });
}

}  // namespace ddp::cuda
