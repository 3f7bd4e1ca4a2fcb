// Pooling over windows. In the backward pass a thread gathers the gradients of its elements from the windows that cover
// them, in row-major order. The positions of maxima in their windows are saved, so that backward reads neither x nor y.
#include "backend/arithmetic.h"
#include "backend/cuda/code/rows.cuh"
#include "backend/cuda/pool/pool.h"

namespace ddp::cuda {
namespace {

// Planes of height x width positions with `inner` contiguous values each: in nhwc, planes are samples and inner values
// are channels; in plain, there is a plane per channel and sample, with one inner value. A thread processes kWidth
// inner values.
struct Pool {
  std::uint32_t planes, inner;
  std::int32_t height, width;          // of x
  std::int32_t out_height, out_width;  // of y
  std::int32_t window_h, window_w, stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;
  bool count_padding;
  bool adaptive;  // then windows follow from the sizes alone
};

struct Position {
  std::uint32_t plane, inner;
  std::int32_t row, column;
};

// The coordinates of the index-th of `inner` values at each position of planes.
__device__ Position position_of(std::uint32_t index, std::uint32_t height, std::uint32_t width, std::uint32_t inner) {
  Position at{};
  at.inner = index % inner;
  index /= inner;
  at.column = static_cast<std::int32_t>(index % width);
  index /= width;
  at.row = static_cast<std::int32_t>(index % height);
  at.plane = index / height;
  return at;
}

// The index of the values of a position.
__device__ std::size_t place_of(const Pool& p, std::int32_t height, std::int32_t width, std::uint32_t plane,
                                std::int32_t row, std::int32_t column, std::uint32_t inner) {
  return ((static_cast<std::size_t>(plane) * height + row) * width + column) * p.inner + inner;
}

// One dimension of a window: its taps [first, end) are inside x, at origin + tap * step.
struct Taps {
  std::int32_t origin, step, first, end;

  __device__ std::int32_t count() const { return end - first; }
  __device__ std::int32_t place(std::int32_t tap) const { return origin + tap * step; }
};

__device__ Taps sliding_taps(std::int32_t origin, std::int32_t step, std::int32_t taps, std::int32_t size) {
  const std::int32_t first = origin < 0 ? (step - 1 - origin) / step : 0;
  const std::int32_t end = size > origin ? (size - origin + step - 1) / step : 0;
  return {origin, step, first, end < taps ? end : taps};
}

// floor(a * b / c) for sizes of images.
__device__ std::int32_t scaled(std::int32_t a, std::int32_t b, std::int32_t c, std::int32_t up = 0) {
  return static_cast<std::int32_t>((static_cast<std::int64_t>(a) * b + up) / c);
}

__device__ Taps adaptive_taps(std::int32_t position, std::int32_t results, std::int32_t size) {
  const std::int32_t first = scaled(position, size, results);
  return {first, 1, 0, scaled(position + 1, size, results, results - 1) - first};
}

struct Window {
  Taps rows, columns;

  __device__ Window(const Pool& p, std::int32_t out_row, std::int32_t out_column)
      : rows(p.adaptive ? adaptive_taps(out_row, p.out_height, p.height)
                        : sliding_taps(out_row * p.stride_h - p.pad_top, p.dilation_h, p.window_h, p.height)),
        columns(p.adaptive ? adaptive_taps(out_column, p.out_width, p.width)
                           : sliding_taps(out_column * p.stride_w - p.pad_left, p.dilation_w, p.window_w, p.width)) {}

  // The weight of each element in the average.
  __device__ float share(const Pool& p) const {
    const std::int32_t inside = rows.count() * columns.count();
    return 1.0F / static_cast<float>(p.count_padding ? p.window_h * p.window_w : inside < 1 ? 1 : inside);
  }
};

template <unsigned kWidth, class T>
__global__ void average_forward_kernel(const Pool p, const T* x, T* y, std::uint32_t count) {
  const std::uint32_t vectors = p.inner / kWidth;
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    const Position at = position_of(static_cast<std::uint32_t>(i), p.out_height, p.out_width, vectors);
    const Window w(p, at.row, at.column);
    float sums[kWidth] = {};
    for (std::int32_t r = w.rows.first; r < w.rows.end; ++r) {
      const std::int32_t row = w.rows.place(r);
      for (std::int32_t c = w.columns.first; c < w.columns.end; ++c) {
        float values[kWidth];
        get_some(x, place_of(p, p.height, p.width, at.plane, row, w.columns.place(c), at.inner * kWidth), values);
        for (unsigned j = 0; j < kWidth; ++j) sums[j] += values[j];
      }
    }
    const float share = w.share(p);
    for (float& sum : sums) sum *= share;
    put_some(y, i * kWidth, sums);
  }
}

// `places`, of type I: the position of the first maximum in its window, row by row; null if not needed.
template <unsigned kWidth, class I, class T>
__global__ void maximum_forward_kernel(const Pool p, const T* x, T* y, I* places, std::uint32_t count) {
  const std::uint32_t vectors = p.inner / kWidth;
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    const Position at = position_of(static_cast<std::uint32_t>(i), p.out_height, p.out_width, vectors);
    const Window w(p, at.row, at.column);
    float best[kWidth];
    Pack<I, kWidth> where;
    for (unsigned j = 0; j < kWidth; ++j) {
      best[j] = below_all();
      where.values[j] = static_cast<I>(w.rows.first * p.window_w + w.columns.first);
    }
    for (std::int32_t r = w.rows.first; r < w.rows.end; ++r) {
      const std::int32_t row = w.rows.place(r);
      for (std::int32_t c = w.columns.first; c < w.columns.end; ++c) {
        const auto here = static_cast<I>(r * p.window_w + c);
        float values[kWidth];
        get_some(x, place_of(p, p.height, p.width, at.plane, row, w.columns.place(c), at.inner * kWidth), values);
        for (unsigned j = 0; j < kWidth; ++j) {
          if (!wins_maximum(values[j], best[j])) continue;
          best[j] = values[j];
          where.values[j] = here;
        }
      }
    }
    put_some(y, i * kWidth, best);
    if (places != nullptr) *reinterpret_cast<Pack<I, kWidth>*>(places + i * kWidth) = where;
  }
}

// Calls f(position, tap) for each window of one dimension that covers the element at `padded`.
template <class F>
__device__ void each_cover(std::int32_t padded, std::int32_t taps, std::int32_t stride, std::int32_t step,
                           std::int32_t results, F f) {
  const std::int32_t extent = (taps - 1) * step + 1;
  for (std::int32_t i = padded < extent ? 0 : (padded - extent) / stride + 1; i < results && i * stride <= padded;
       ++i) {
    const std::int32_t distance = padded - i * stride;
    if (step == 1) {
      f(i, distance);
    } else if (distance % step == 0) {
      f(i, distance / step);
    }
  }
}

// Calls f(row, column, tap in row-major order) for each window that covers an element of x; of adaptive windows the tap
// is 0.
template <class F>
__device__ void each_window(const Pool& p, const Position& at, F f) {
  if (p.adaptive) {
    const std::int32_t end_row = scaled(at.row + 1, p.out_height, p.height, p.height - 1);
    const std::int32_t end_column = scaled(at.column + 1, p.out_width, p.width, p.width - 1);
    for (std::int32_t i = scaled(at.row, p.out_height, p.height); i < end_row; ++i) {
      for (std::int32_t j = scaled(at.column, p.out_width, p.width); j < end_column; ++j) f(i, j, 0);
    }
    return;
  }
  each_cover(at.row + p.pad_top, p.window_h, p.stride_h, p.dilation_h, p.out_height, [&](auto i, auto r) {
    each_cover(at.column + p.pad_left, p.window_w, p.stride_w, p.dilation_w, p.out_width,
               [&](auto j, auto c) { f(i, j, r * p.window_w + c); });
  });
}

template <unsigned kWidth, class T>
__global__ void average_backward_kernel(const Pool p, const T* dy, T* dx, std::uint32_t count) {
  const std::uint32_t vectors = p.inner / kWidth;
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    const Position at = position_of(static_cast<std::uint32_t>(i), p.height, p.width, vectors);
    float gradient[kWidth] = {};
    each_window(p, at, [&](std::int32_t row, std::int32_t column, std::int32_t /*tap*/) {
      float values[kWidth];
      get_some(dy, place_of(p, p.out_height, p.out_width, at.plane, row, column, at.inner * kWidth), values);
      const float share = Window(p, row, column).share(p);
      for (unsigned j = 0; j < kWidth; ++j) gradient[j] += share * values[j];
    });
    put_some(dx, i * kWidth, gradient);
  }
}

template <unsigned kWidth, class I, class T>
__global__ void maximum_backward_kernel(const Pool p, const I* places, const T* dy, T* dx, std::uint32_t count) {
  const std::uint32_t vectors = p.inner / kWidth;
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    const Position at = position_of(static_cast<std::uint32_t>(i), p.height, p.width, vectors);
    float gradient[kWidth] = {};
    each_window(p, at, [&](std::int32_t row, std::int32_t column, std::int32_t tap) {
      const std::size_t window = place_of(p, p.out_height, p.out_width, at.plane, row, column, at.inner * kWidth);
      const auto where = *reinterpret_cast<const Pack<I, kWidth>*>(places + window);
      float values[kWidth];
      get_some(dy, window, values);
      const auto here = static_cast<I>(tap);
      for (unsigned j = 0; j < kWidth; ++j) gradient[j] += where.values[j] == here ? values[j] : 0.0F;
    });
    put_some(dx, i * kWidth, gradient);
  }
}

// One window that covers a whole plane: in a block of columns x lines, each line takes every lines-th position of its
// columns; the lines are added by a binary tree.
template <unsigned kWidth, class T>
__global__ void global_average_kernel(const Pool p, const T* x, T* y, std::uint32_t groups) {
  __shared__ float tree[kWidth][kThreads];
  const std::uint32_t plane = blockIdx.x / groups;
  const std::uint32_t inner = (blockIdx.x % groups * blockDim.x + threadIdx.x) * kWidth;
  const auto positions = static_cast<std::uint32_t>(p.height * p.width);
  float sums[kWidth] = {};
  for (std::uint32_t at = threadIdx.y; inner < p.inner && at < positions; at += blockDim.y) {
    float values[kWidth];
    get_some(x, (static_cast<std::size_t>(plane) * positions + at) * p.inner + inner, values);
    for (unsigned j = 0; j < kWidth; ++j) sums[j] += values[j];
  }
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  for (unsigned j = 0; j < kWidth; ++j) tree[j][thread] = sums[j];
  merge_lines(tree, [](float a, float b) { return a + b; });
  if (threadIdx.y != 0 || inner >= p.inner) return;
  const float share = Window(p, 0, 0).share(p);
  for (unsigned j = 0; j < kWidth; ++j) sums[j] = share * tree[j][thread];
  put_some(y, static_cast<std::size_t>(plane) * p.inner + inner, sums);
}

Pool pool_of(const PoolSpec& spec, Layout layout) {
  const auto u32 = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const auto i32 = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  const Shape out = spec.output();
  const bool nhwc = layout == Layout::nhwc;
  return {u32(nhwc ? spec.batch : spec.batch * spec.input.channels),
          nhwc ? u32(spec.input.channels) : 1U,
          i32(spec.input.height),
          i32(spec.input.width),
          i32(out.height),
          i32(out.width),
          i32(spec.window.height),
          i32(spec.window.width),
          i32(spec.window.stride.vertical),
          i32(spec.window.stride.horizontal),
          i32(spec.window.dilation.vertical),
          i32(spec.window.dilation.horizontal),
          i32(spec.window.padding.top),
          i32(spec.window.padding.left),
          spec.count_padding && !spec.adaptive(),
          spec.adaptive()};
}

bool covers_all(const PoolSpec& s) {
  return !s.adaptive() && s.window.dilation == 1 && s.output().height == 1 && s.output().width == 1 &&
         s.window.height - s.window.padding.top >= s.input.height &&
         s.window.width - s.window.padding.left >= s.input.width;
}

// Calls f with a value of the element's type and the number of inner values per thread.
template <class F>
void with_width(Element element, const Pool& pool, F f) {
  with_element(element, [&](auto zero) {
    constexpr unsigned kWidth = kVector<decltype(zero)>;
    if (pool.inner % kWidth == 0) {
      f(zero, std::integral_constant<unsigned, kWidth>{});
    } else {
      f(zero, std::integral_constant<unsigned, 1>{});
    }
  });
}

// Positions in a window take one byte if they fit.
bool places_are_bytes(const PoolSpec& spec) { return spec.window.height * spec.window.width <= 256; }

// Calls f with `saved` cast to the type of its elements.
template <class F>
void with_places(const PoolSpec& spec, std::byte* saved, F f) {
  if (places_are_bytes(spec)) {
    f(as<std::uint8_t>(static_cast<void*>(saved)));
  } else {
    f(as<std::uint32_t>(static_cast<void*>(saved)));
  }
}

void global_average_forward(cudaStream_t stream, Element element, const Pool& pool, const void* x, void* y) {
  with_width(element, pool, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr unsigned kWidth = decltype(width)::value;
    constexpr unsigned kMostColumns = 32;
    const unsigned vectors = pool.inner / kWidth;
    unsigned columns = 1;
    while (columns < vectors && columns < kMostColumns) columns *= 2;
    const auto positions = static_cast<unsigned>(pool.height * pool.width);
    unsigned lines = 1;
    while (lines < positions && lines * columns < kThreads) lines *= 2;
    const unsigned groups = (vectors + columns - 1) / columns;
    launch(stream, pool.planes * groups, dim3(columns, lines), global_average_kernel<kWidth, T>, pool, as<T>(x),
           as<T>(y), groups);
  });
}

}  // namespace

std::size_t pool_saved_bytes(const PoolSpec& spec) {
  if (spec.kind == PoolSpec::Kind::average) return 0;
  const auto count = static_cast<std::size_t>(spec.batch * spec.output().elements());
  return count * (places_are_bytes(spec) ? sizeof(std::uint8_t) : sizeof(std::uint32_t));
}

void pool_forward(cudaStream_t stream, Element element, const PoolSpec& spec, Layout layout, const void* x, void* y,
                  std::byte* saved) {
  const std::int64_t count = spec.batch * spec.output().elements();
  if (count == 0) return;
  const Pool pool = pool_of(spec, layout);
  const bool average = spec.kind == PoolSpec::Kind::average;
  if (average && covers_all(spec)) return global_average_forward(stream, element, pool, x, y);
  with_width(element, pool, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr unsigned kWidth = decltype(width)::value;
    const std::int64_t vectors = count / kWidth;
    if (average) {
      launch(stream, blocks_for(vectors), kThreads, average_forward_kernel<kWidth, T>, pool, as<T>(x), as<T>(y),
             vectors);
      return;
    }
    with_places(spec, saved, [&](auto* places) {
      using I = std::remove_pointer_t<decltype(places)>;
      launch(stream, blocks_for(vectors), kThreads, maximum_forward_kernel<kWidth, I, T>, pool, as<T>(x), as<T>(y),
             places, vectors);
    });
  });
}

void pool_backward(cudaStream_t stream, Element element, const PoolSpec& spec, Layout layout, const void* dy, void* dx,
                   std::byte* saved) {
  const std::int64_t count = spec.batch * spec.input.elements();
  if (count == 0) return;
  const Pool pool = pool_of(spec, layout);
  with_width(element, pool, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr unsigned kWidth = decltype(width)::value;
    const std::int64_t vectors = count / kWidth;
    if (spec.kind == PoolSpec::Kind::average) {
      launch(stream, blocks_for(vectors), kThreads, average_backward_kernel<kWidth, T>, pool, as<T>(dy), as<T>(dx),
             vectors);
      return;
    }
    with_places(spec, saved, [&](auto* places) {
      using I = std::remove_pointer_t<decltype(places)>;
      launch(stream, blocks_for(vectors), kThreads, maximum_backward_kernel<kWidth, I, T>, pool, places, as<T>(dy),
             as<T>(dx), vectors);
    });
  });
}

}  // namespace ddp::cuda
