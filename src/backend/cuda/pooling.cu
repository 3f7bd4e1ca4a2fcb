#include "backend/arithmetic.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace ddp::cuda {
namespace {

// Planes of height x width positions with `inner` values side by side at each: nhwc has samples as planes and channels
// as inner values; plain has a plane for each channel of each sample and one inner value.
struct Pool {
  std::uint32_t inner;
  std::uint32_t height, width;          // of x
  std::uint32_t out_height, out_width;  // of y
  std::uint32_t window, stride;
  bool average;
};

struct Position {
  std::uint32_t plane, row, column, inner;
};

__device__ Position position_of(std::uint32_t index, std::uint32_t height, std::uint32_t width, std::uint32_t inner) {
  Position at{};
  at.inner = index % inner;
  index /= inner;
  at.column = index % width;
  index /= width;
  at.row = index % height;
  at.plane = index / height;
  return at;
}

template <class T>
__global__ void pool_forward_kernel(const Pool p, const T* x, T* y, std::uint32_t count) {
  const float share = 1.0F / static_cast<float>(p.window * p.window);
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    const Position at = position_of(static_cast<std::uint32_t>(i), p.out_height, p.out_width, p.inner);
    float value = p.average ? 0.0F : below_all();
    for (std::uint32_t r = 0; r < p.window; ++r) {
      const std::uint32_t row = (at.plane * p.height + at.row * p.stride + r) * p.width;
      for (std::uint32_t s = 0; s < p.window; ++s) {
        const float next = get(x, (row + at.column * p.stride + s) * p.inner + at.inner);
        value = p.average ? value + next : larger(value, next);
      }
    }
    put(y, i, p.average ? value * share : value);
  }
}

// Whether position (row, column) of x is the first in row-major order that equals the maximum of window (i, j).
template <class T>
__device__ bool is_first_maximum(const Pool& p, const T* x, const Position& at, std::uint32_t i, std::uint32_t j,
                                 float maximum) {
  for (std::uint32_t row = i * p.stride; row <= at.row; ++row) {
    for (std::uint32_t s = 0; s < p.window; ++s) {
      const std::uint32_t column = j * p.stride + s;
      const bool here = row == at.row && column == at.column;
      const float value = get(x, ((at.plane * p.height + row) * p.width + column) * p.inner + at.inner);
      if (value == maximum) return here;
      if (here) return false;
    }
  }
  return false;
}

// A thread gathers the gradient of one element of x from the windows that cover it, in row-major order.
template <class T>
__global__ void pool_backward_kernel(const Pool p, const T* x, const T* y, const T* dy, T* dx, std::uint32_t count) {
  const float share = 1.0F / static_cast<float>(p.window * p.window);
  const auto first_window = [&p](std::uint32_t position) {
    return position < p.window ? 0U : (position - p.window) / p.stride + 1;
  };
  for (std::size_t index = first_index(); index < count; index += index_step()) {
    const Position at = position_of(static_cast<std::uint32_t>(index), p.height, p.width, p.inner);
    float gradient = 0.0F;
    for (std::uint32_t i = first_window(at.row); i < p.out_height && i * p.stride <= at.row; ++i) {
      for (std::uint32_t j = first_window(at.column); j < p.out_width && j * p.stride <= at.column; ++j) {
        const std::uint32_t window = ((at.plane * p.out_height + i) * p.out_width + j) * p.inner + at.inner;
        if (p.average) {
          gradient += share * get(dy, window);
        } else if (is_first_maximum(p, x, at, i, j, get(y, window))) {
          gradient += get(dy, window);
        }
      }
    }
    put(dx, index, gradient);
  }
}

Pool pool_of(const PoolSpec& spec, Layout layout) {
  const auto u32 = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const Shape out = spec.output();
  return {layout == Layout::nhwc ? u32(spec.input.channels) : 1U,
          u32(spec.input.height),
          u32(spec.input.width),
          u32(out.height),
          u32(out.width),
          u32(spec.window),
          u32(spec.stride),
          spec.kind == PoolSpec::Kind::average};
}

}  // namespace

void pool_forward(cudaStream_t stream, Element element, const PoolSpec& spec, Layout layout, const void* x, void* y) {
  const std::int64_t count = spec.batch * spec.output().elements();
  if (count == 0) return;
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(count), kThreads, pool_forward_kernel<T>, pool_of(spec, layout), as<T>(x), as<T>(y),
           count);
  });
}

void pool_backward(cudaStream_t stream, Element element, const PoolSpec& spec, Layout layout, const void* x,
                   const void* y, const void* dy, void* dx) {
  const std::int64_t count = spec.batch * spec.input.elements();
  if (count == 0) return;
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(count), kThreads, pool_backward_kernel<T>, pool_of(spec, layout), as<T>(x), as<T>(y),
           as<T>(dy), as<T>(dx), count);
  });
}

}  // namespace ddp::cuda
