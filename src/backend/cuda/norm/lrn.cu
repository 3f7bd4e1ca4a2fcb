// Local response normalisation. With b = k + alpha / size * sum of x^2 over the window of a channel, y = x b^-beta, and
//   dx = dy b^-beta - 2 alpha beta / size * x * sum of dy x b^(-beta - 1) over the channels in whose window this one is.
#include "backend/arithmetic.h"
#include "backend/cuda/code/launch.cuh"
#include "backend/cuda/norm/norm.h"

namespace ddp::cuda {
namespace {

struct Lrn {
  std::uint32_t channels;
  std::uint32_t apart;          // elements between neighbouring channels
  std::uint32_t before, after;  // channels of a window on either side
  float alpha;                  // divided by the size
  float beta, k;
};

__device__ std::uint32_t channel_of(const Lrn& l, std::size_t i) {
  return static_cast<std::uint32_t>(i) / l.apart % l.channels;
}

// Calls f with the index of each of `before` channels before that of element i, its own, and `after` after it.
template <class F>
__device__ void each_neighbour(const Lrn& l, std::size_t i, std::uint32_t before, std::uint32_t after, F f) {
  const std::uint32_t channel = channel_of(l, i);
  const std::uint32_t back = channel < before ? channel : before;
  const std::uint32_t rest = l.channels - 1 - channel;
  const std::uint32_t on = rest < after ? rest : after;
  std::size_t place = i - static_cast<std::size_t>(back) * l.apart;
  for (std::uint32_t step = 0; step <= back + on; ++step, place += l.apart) f(place);
}

template <class T>
__device__ float base_at(const Lrn& l, const T* x, std::size_t i) {
  float squares = 0.0F;
  each_neighbour(l, i, l.before, l.after, [&](std::size_t place) {
    const float value = get(x, place);
    squares += value * value;
  });
  return l.k + l.alpha * squares;
}

template <class T>
__global__ void lrn_forward_kernel(const Lrn l, const T* x, T* y, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    put(y, i, get(x, i) * std::pow(base_at(l, x, i), -l.beta));
  }
}

// products = dy x b^(-beta - 1), in fp32.
template <class T>
__global__ void lrn_products_kernel(const Lrn l, const T* x, const T* dy, float* products, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    const float base = base_at(l, x, i);
    products[i] = get(dy, i) * get(x, i) * std::pow(base, -l.beta) / base;
  }
}

template <class T>
__global__ void lrn_backward_kernel(const Lrn l, const T* x, const T* dy, const float* products, T* dx,
                                    std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    float sum = 0.0F;
    // The transposed window: before and after are exchanged.
    each_neighbour(l, i, l.after, l.before, [&](std::size_t place) { sum += products[place]; });
    const float direct = get(dy, i) * std::pow(base_at(l, x, i), -l.beta);
    put(dx, i, direct - 2.0F * l.alpha * l.beta * get(x, i) * sum);
  }
}

Lrn lrn_of(const LrnSpec& spec, Layout layout) {
  const auto u32 = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  return {u32(spec.shape.channels),
          layout == Layout::nhwc ? 1U : u32(spec.shape.height * spec.shape.width),
          u32(spec.size / 2),
          u32((spec.size - 1) / 2),
          spec.alpha / static_cast<float>(spec.size),
          spec.beta,
          spec.k};
}

}  // namespace

void lrn_forward(cudaStream_t stream, Element element, const LrnSpec& spec, Layout layout, const void* x, void* y) {
  const std::int64_t count = spec.batch * spec.shape.elements();
  if (count == 0) return;
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(count), kThreads, lrn_forward_kernel<T>, lrn_of(spec, layout), as<T>(x), as<T>(y), count);
  });
}

void lrn_backward(cudaStream_t stream, Element element, const LrnSpec& spec, Layout layout, const void* x,
                  const void* dy, void* dx, float* products) {
  const std::int64_t count = spec.batch * spec.shape.elements();
  if (count == 0) return;
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    const Lrn lrn = lrn_of(spec, layout);
    launch(stream, blocks_for(count), kThreads, lrn_products_kernel<T>, lrn, as<T>(x), as<T>(dy), products, count);
    launch(stream, blocks_for(count), kThreads, lrn_backward_kernel<T>, lrn, as<T>(x), as<T>(dy), products, as<T>(dx),
           count);
  });
}

}  // namespace ddp::cuda
