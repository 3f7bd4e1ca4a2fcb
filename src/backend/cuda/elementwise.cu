#include "backend/arithmetic.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace ddp::cuda {
namespace {

template <class T>
__global__ void relu_forward_kernel(const T* x, T* y, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += index_step()) put(y, i, relu(get(x, i)));
}

template <class T>
__global__ void relu_backward_kernel(const T* y, const T* dy, T* dx, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += index_step()) put(dx, i, relu_gradient(get(y, i), get(dy, i)));
}

template <class From, class To>
__global__ void convert_kernel(const From* source, To* target, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += index_step()) put(target, i, get(source, i));
}

// A thread writes one element: neighbouring threads write neighbours.
template <class T>
__global__ void transpose_kernel(const T* from, T* to, std::uint32_t count, std::uint32_t rows, std::uint32_t columns) {
  const std::uint32_t sample_elements = rows * columns;
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    const auto index = static_cast<std::uint32_t>(i);
    const std::uint32_t sample = index / sample_elements;
    const std::uint32_t within = index % sample_elements;
    const std::uint32_t column = within / rows;
    const std::uint32_t row = within % rows;
    to[index] = from[sample * sample_elements + row * columns + column];
  }
}

}  // namespace

void relu_forward(cudaStream_t stream, Element element, const void* x, void* y, std::int64_t count) {
  if (count == 0) return;
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(count), kThreads, relu_forward_kernel<T>, as<T>(x), as<T>(y), count);
  });
}

void relu_backward(cudaStream_t stream, Element element, const void* y, const void* dy, void* dx, std::int64_t count) {
  if (count == 0) return;
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(count), kThreads, relu_backward_kernel<T>, as<T>(y), as<T>(dy), as<T>(dx), count);
  });
}

void convert(cudaStream_t stream, Element from, const void* source, Element to, void* target, std::int64_t count) {
  if (count == 0) return;
  with_element(from, [&](auto from_zero) {
    with_element(to, [&](auto to_zero) {
      using From = decltype(from_zero);
      using To = decltype(to_zero);
      launch(stream, blocks_for(count), kThreads, convert_kernel<From, To>, as<From>(source), as<To>(target), count);
    });
  });
}

void transpose_samples(cudaStream_t stream, Element element, const void* from, void* to, std::int64_t samples,
                       std::int64_t rows, std::int64_t columns) {
  const std::int64_t count = samples * rows * columns;
  if (count == 0) return;
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(count), kThreads, transpose_kernel<T>, as<T>(from), as<T>(to), count, rows, columns);
  });
}

}  // namespace ddp::cuda
