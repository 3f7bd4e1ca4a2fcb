// Elementwise kernels, independent of the layout.
#include "backend/cuda/code/activate.cuh"
#include "backend/cuda/code/vector.cuh"
#include "backend/cuda/pointwise/pointwise.h"

namespace ddp::cuda {
namespace {

template <class T>
__global__ void activation_forward_kernel(Activation activation, const T* x, T* y, std::size_t count) {
  constexpr unsigned kWidth = kVector<T>;
  for (std::size_t i = first_index() * kWidth; i < count; i += index_step() * kWidth) {
    float values[kWidth];
    get_some(x, i, count, values);
    for (float& value : values) value = activate(activation, value);
    put_some(y, i, count, values);
  }
}

// Writes the gradient to dx and, unless null, to dx2. Without activation y is not read.
template <class T>
__global__ void activation_backward_kernel(Activation activation, const T* y, const T* dy, T* dx, T* dx2,
                                           std::size_t count) {
  constexpr unsigned kWidth = kVector<T>;
  for (std::size_t i = first_index() * kWidth; i < count; i += index_step() * kWidth) {
    float results[kWidth] = {};
    float values[kWidth];
    if (activation != Activation::none) get_some(y, i, count, results);
    get_some(dy, i, count, values);
    for (unsigned j = 0; j < kWidth; ++j) values[j] = activation_gradient(activation, results[j], values[j]);
    put_some(dx, i, count, values);
    if (dx2 != nullptr) put_some(dx2, i, count, values);
  }
}

template <class T>
__global__ void add_kernel(Activation activation, const T* a, const T* b, T* y, std::size_t count) {
  constexpr unsigned kWidth = kVector<T>;
  for (std::size_t i = first_index() * kWidth; i < count; i += index_step() * kWidth) {
    float values[kWidth];
    float addend[kWidth];
    get_some(a, i, count, values);
    get_some(b, i, count, addend);
    for (unsigned j = 0; j < kWidth; ++j) values[j] = activate(activation, values[j] + addend[j]);
    put_some(y, i, count, values);
  }
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

void activation_forward(cudaStream_t stream, Element element, Activation activation, const void* x, void* y,
                        std::int64_t count) {
  if (count == 0) return;
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, vector_blocks_for<T>(count), kThreads, activation_forward_kernel<T>, activation, as<T>(x), as<T>(y),
           count);
  });
}

void activation_backward(cudaStream_t stream, Element element, Activation activation, const void* y, const void* dy,
                         void* dx, void* dx2, std::int64_t count) {
  if (count == 0) return;
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, vector_blocks_for<T>(count), kThreads, activation_backward_kernel<T>, activation, as<T>(y),
           as<T>(dy), as<T>(dx), as<T>(dx2), count);
  });
}

void add_activations(cudaStream_t stream, Element element, Activation activation, const void* a, const void* b, void* y,
                     std::int64_t count) {
  if (count == 0) return;
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, vector_blocks_for<T>(count), kThreads, add_kernel<T>, activation, as<T>(a), as<T>(b), as<T>(y),
           count);
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
