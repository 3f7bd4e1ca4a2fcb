#include "backend/cuda/code/launch.cuh"
#include "backend/cuda/linear/small_product.h"

namespace ddp::cuda {
namespace {

constexpr std::int64_t kMostOutputs = 32;
constexpr std::int64_t kOutputsOfLibraries = 8;
constexpr unsigned kColumns = 32;
constexpr unsigned kLines = 32;

// Block (columns of x, output): each line takes every kLines-th sample, then the lines are added in order. An
// additional column of ones gives the bias gradient.
template <class T>
__global__ void __launch_bounds__(kColumns* kLines)
    small_gradient_kernel(const T* dpre, const T* x, float* weights, float* bias, std::uint32_t batch,
                          std::uint32_t inputs, std::uint32_t outputs) {
  __shared__ float lines[kLines][kColumns];
  const std::uint32_t column = blockIdx.x * kColumns + threadIdx.x;
  float sum = 0.0F;
  for (std::uint32_t sample = threadIdx.y; sample < batch && column <= inputs; sample += kLines) {
    const float slope = get(dpre, static_cast<std::size_t>(sample) * outputs + blockIdx.y);
    sum += column < inputs ? slope * get(x, static_cast<std::size_t>(sample) * inputs + column) : slope;
  }
  lines[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0) return;
  for (unsigned line = 1; line < kLines; ++line) sum += lines[line][threadIdx.x];
  if (column < inputs) weights[static_cast<std::size_t>(blockIdx.y) * inputs + column] = sum;
  if (column == inputs && bias != nullptr) bias[blockIdx.y] = sum;
}

}  // namespace

bool takes_small_gradient(const LinearSpec& spec) {
  return spec.outputs <= kMostOutputs && spec.outputs % kOutputsOfLibraries != 0;
}

void small_gradient(cudaStream_t stream, Element element, const LinearSpec& spec, const void* dpre, const void* x,
                    float* weight_gradient, float* bias_gradient) {
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    const dim3 blocks(static_cast<unsigned>(spec.inputs / kColumns + 1), static_cast<unsigned>(spec.outputs));
    launch(stream, blocks, dim3(kColumns, kLines), small_gradient_kernel<T>, as<T>(dpre), as<T>(x), weight_gradient,
           bias_gradient, spec.batch, spec.inputs, spec.outputs);
  });
}

}  // namespace ddp::cuda
