#include <omp.h>

#include <algorithm>
#include <type_traits>

#include "backend/arithmetic.h"
#include "backend/cpu/device/planes.h"
#include "backend/cpu/device/values.h"
#include "backend/cpu/isa/instruction_set.h"
#include "backend/cpu/pointwise/elementwise_kernels.h"
#include "backend/cpu/pool/pool.h"
#include "backend/cpu/pool/pool_kernels.h"
#include "backend/workspace.h"
#include "base/error.h"

LANES_BF16_TABLE(PoolKernels, pool_kernels)

namespace ddp {
namespace {

// The part of a window inside the input: rows or columns first, first + step ... below last.
struct Range {
  std::int64_t first;
  std::int64_t last;
  std::int64_t step = 1;

  std::int64_t size() const { return (last - first + step - 1) / step; }
};

// The elements of a dimension of `size` that are averaged to one of `results`.
Range adaptive_range(std::int64_t position, std::int64_t size, std::int64_t results) {
  return {position * size / results, ((position + 1) * size + results - 1) / results};
}

class Pool : public Op {
 public:
  Pool(const PoolSpec& spec, Layout layout) : spec_(spec), layout_(layout) {
    const Padding2d& padding = spec.window.padding;
    DDP_ASSERT(spec.adaptive() || std::max(padding.top, padding.bottom) < spec.window.rows());
    DDP_ASSERT(spec.adaptive() || std::max(padding.left, padding.right) < spec.window.columns());
  }

 protected:
  // Calls f(rows, columns, offset of the window's output) for every window of plane p.
  template <class F>
  void each_window(std::int64_t p, std::int64_t inner, F f) const {
    const Shape out = spec_.output();
    for (std::int64_t i = 0; i < out.height; ++i) {
      const Range rows = rows_of(i);
      for (std::int64_t j = 0; j < out.width; ++j) {
        const Range columns = columns_of(j);
        f(rows, columns, ((p * out.height + i) * out.width + j) * inner);
      }
    }
  }
  Planes planes(std::int64_t active) const {
    return planes_of(computed_samples(active, spec_.batch, layout_), spec_.input, layout_);
  }
  std::int64_t in_plane(std::int64_t inner) const { return spec_.input.height * spec_.input.width * inner; }

  PoolSpec spec_;
  Layout layout_;

 private:
  Range rows_of(std::int64_t i) const {
    if (spec_.adaptive()) return adaptive_range(i, spec_.input.height, spec_.adaptive_height);
    const Window2d& w = spec_.window;
    return inside(i * w.stride.vertical - w.padding.top, w.rows(), w.dilation.vertical, spec_.input.height);
  }
  Range columns_of(std::int64_t j) const {
    if (spec_.adaptive()) return adaptive_range(j, spec_.input.width, spec_.adaptive_width);
    const Window2d& w = spec_.window;
    return inside(j * w.stride.horizontal - w.padding.left, w.columns(), w.dilation.horizontal, spec_.input.width);
  }
  static Range inside(std::int64_t begin, std::int64_t extent, std::int64_t step, std::int64_t size) {
    const std::int64_t skipped = begin < 0 ? (step - 1 - begin) / step : 0;
    return {begin + skipped * step, std::min(begin + extent, size), step};
  }
};

class AveragePool final : public Pool {
 public:
  using Pool::Pool;

  void forward(const ForwardArguments& a) override {
    const Planes view = planes(a.active);
#pragma omp parallel for schedule(static)
    for (std::int64_t p = 0; p < view.outer; ++p) {
      const float* x = a.x().fp32() + p * in_plane(view.inner);
      each_window(p, view.inner, [&](Range rows, Range columns, std::int64_t at) {
        float* y = a.y.fp32() + at;
        std::fill_n(y, view.inner, 0.0F);
        for (std::int64_t r = rows.first; r < rows.last; r += rows.step) {
          for (std::int64_t c = columns.first; c < columns.last; c += columns.step) {
            const float* from = x + (r * spec_.input.width + c) * view.inner;
            for (std::int64_t k = 0; k < view.inner; ++k) y[k] += from[k];
          }
        }
        const float part = share(rows, columns);
        for (std::int64_t k = 0; k < view.inner; ++k) y[k] *= part;
      });
    }
  }

  void backward(const BackwardArguments& a) override {
    const Planes view = planes(a.active);
#pragma omp parallel for schedule(static)
    for (std::int64_t p = 0; p < view.outer; ++p) {
      float* dx = a.dx().fp32() + p * in_plane(view.inner);
      std::fill_n(dx, in_plane(view.inner), 0.0F);
      each_window(p, view.inner, [&](Range rows, Range columns, std::int64_t at) {
        const float* dy = a.dy.fp32() + at;
        const float part = share(rows, columns);
        for (std::int64_t r = rows.first; r < rows.last; r += rows.step) {
          for (std::int64_t c = columns.first; c < columns.last; c += columns.step) {
            float* to = dx + (r * spec_.input.width + c) * view.inner;
            for (std::int64_t k = 0; k < view.inner; ++k) to[k] += part * dy[k];
          }
        }
      });
    }
    clear_rest(a.dx().fp32(), a.active, spec_.batch, spec_.input, layout_);
  }

 private:
  float share(Range rows, Range columns) const {
    const bool whole = spec_.count_padding && !spec_.adaptive();
    return 1.0F / static_cast<float>(whole ? spec_.window.elements() : rows.size() * columns.size());
  }
};

// Forward saves for each result the position of its maximum within the part of the window inside the input, as Index,
// so that backward reads neither x nor y. Value: the element of activations; the gradients of overlapping windows are
// added in fp32, with bf16 in a plane of each thread.
template <class Index, class Value>
class MaximumPool final : public Pool {
  static constexpr bool kWide = std::is_same_v<Value, float>;

 public:
  MaximumPool(const PoolSpec& spec, Layout layout, const lanes::MaximumKernels<Index, Raw<Value>>& kernels)
      : Pool(spec, layout), kernels_(kernels), threads_(omp_get_max_threads()) {
    if constexpr (!kWide) planes_ = workspace_.add<float>(threads_ * in_plane(planes(spec.batch).inner));
  }
  OpTraits traits() const override {
    return {
        .saved_bytes = static_cast<std::size_t>(stored_elements(spec_.batch, spec_.output(), layout_)) * sizeof(Index),
        .workspace_bytes = workspace_.bytes()};
  }

  void forward(const ForwardArguments& a) override {
    const Planes view = planes(a.active);
    auto* places = static_cast<Index*>(static_cast<void*>(a.saved));
#pragma omp parallel for schedule(static)
    for (std::int64_t p = 0; p < view.outer; ++p) {
      const Value* x = values<Value>(a.x()) + p * in_plane(view.inner);
      each_window(p, view.inner, [&](Range rows, Range columns, std::int64_t at) {
        kernels_.forward(window(rows, columns, view.inner), raw(x + first(rows, columns, view.inner)),
                         raw(values<Value>(a.y) + at), a.training ? places + at : nullptr);
      });
    }
  }

  // The gradients of overlapping windows add up.
  void backward(const BackwardArguments& a) override {
    const Planes view = planes(a.active);
    const auto* places = static_cast<const Index*>(static_cast<const void*>(a.saved));
    const std::int64_t plane = in_plane(view.inner);
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t p = 0; p < view.outer; ++p) {
      Value* result = values<Value>(a.dx()) + p * plane;
      float* dx = nullptr;
      if constexpr (kWide) dx = result;
      if constexpr (!kWide) dx = planes_.in(a.workspace) + omp_get_thread_num() * plane;
      std::fill_n(dx, plane, 0.0F);
      each_window(p, view.inner, [&](Range rows, Range columns, std::int64_t at) {
        kernels_.backward(window(rows, columns, view.inner), raw(values<Value>(a.dy) + at), places + at,
                          dx + first(rows, columns, view.inner));
      });
      if constexpr (!kWide) lanes::elementwise_kernels().to_bf16(plane, dx, raw(result));
    }
    clear_rest(values<Value>(a.dx()), a.active, spec_.batch, spec_.input, layout_);
  }

 private:
  lanes::PoolWindow window(Range rows, Range columns, std::int64_t inner) const {
    return {rows.size(), columns.size(), rows.step * spec_.input.width * inner, columns.step * inner, inner};
  }
  std::int64_t first(Range rows, Range columns, std::int64_t inner) const {
    return (rows.first * spec_.input.width + columns.first) * inner;
  }

  const lanes::MaximumKernels<Index, Raw<Value>>& kernels_;
  int threads_;
  Workspace workspace_;
  Workspace::Part<float> planes_;
};

}  // namespace

namespace {

template <class Value>
std::unique_ptr<Op> make_maximum_pool(const PoolSpec& spec, Layout layout) {
  constexpr std::int64_t kMostInAByte = 256;
  const lanes::PoolKernels& k = lanes::pool_kernels();
  if (spec.window.height * spec.window.width <= kMostInAByte) {
    return std::make_unique<MaximumPool<std::uint8_t, Value>>(spec, layout,
                                                              of_values<Value>(k.in_a_byte, k.in_a_byte_bf16));
  }
  return std::make_unique<MaximumPool<std::int32_t, Value>>(spec, layout, of_values<Value>(k.large, k.large_bf16));
}

}  // namespace

std::unique_ptr<Op> make_pool(const PoolSpec& spec, Layout layout, Element element) {
  if (spec.kind == PoolSpec::Kind::average) {
    return element == Element::fp32 ? std::make_unique<AveragePool>(spec, layout) : nullptr;
  }
  return element == Element::bf16 ? make_maximum_pool<Bf16>(spec, layout) : make_maximum_pool<float>(spec, layout);
}

void average_pool2(const float* y, float* pooled, std::int64_t outer, std::int64_t height, std::int64_t width,
                   std::int64_t inner) {
  const std::int64_t rows = outer * (height / 2);
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t plane = row / (height / 2);
    const float* upper = y + (plane * height + 2 * (row % (height / 2))) * width * inner;
    const float* lower = upper + width * inner;
    float* to = pooled + row * (width / 2) * inner;
    for (std::int64_t j = 0; j < width / 2; ++j) {
      const std::int64_t at = 2 * j * inner;
      for (std::int64_t k = 0; k < inner; ++k) {
        to[j * inner + k] = average_of_four(upper[at + k], upper[at + inner + k], lower[at + k], lower[at + inner + k]);
      }
    }
  }
}

void average_pool2_relu_backward(const float* dpooled, const float* y, float* dpre, std::int64_t outer,
                                 std::int64_t height, std::int64_t width, std::int64_t inner) {
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < outer * height; ++row) {
    const std::int64_t plane = row / height;
    const std::int64_t i = row % height;
    const float* from = dpooled + (plane * (height / 2) + i / 2) * (width / 2) * inner;
    const std::int64_t begin = row * width * inner;
    for (std::int64_t j = 0; j < width; ++j) {
      for (std::int64_t k = 0; k < inner; ++k) {
        const std::int64_t at = begin + j * inner + k;
        dpre[at] = relu_gradient(y[at], 0.25F * from[j / 2 * inner + k]);
      }
    }
  }
}

}  // namespace ddp
