#include <algorithm>

#include "backend/arithmetic.h"
#include "backend/cpu/operators.h"
#include "backend/cpu/planes.h"

namespace ddp {
namespace {

class Pool final : public Op {
 public:
  Pool(const PoolSpec& spec, Layout layout) : spec_(spec), layout_(layout) {}

  bool backward_reads_x() const override { return spec_.kind == PoolSpec::Kind::maximum; }
  bool backward_reads_y() const override { return spec_.kind == PoolSpec::Kind::maximum; }

  void forward(const ForwardArguments& a) override {
    const Planes planes = planes_of(computed_samples(a.active, spec_.batch, layout_), spec_.input, layout_);
    const Shape out = spec_.output();
    const std::int64_t in_plane = spec_.input.height * spec_.input.width * planes.inner;
    const std::int64_t out_plane = out.height * out.width * planes.inner;
#pragma omp parallel for schedule(static)
    for (std::int64_t p = 0; p < planes.outer; ++p) {
      for (std::int64_t i = 0; i < out.height; ++i) {
        for (std::int64_t j = 0; j < out.width; ++j) {
          const float* window = a.x + p * in_plane + position(i, j) * planes.inner;
          pool_window(window, planes.inner, a.y + p * out_plane + (i * out.width + j) * planes.inner);
        }
      }
    }
  }

  void backward(const BackwardArguments& a) override {
    const Planes planes = planes_of(computed_samples(a.active, spec_.batch, layout_), spec_.input, layout_);
    const Shape out = spec_.output();
    const std::int64_t in_plane = spec_.input.height * spec_.input.width * planes.inner;
    const std::int64_t out_plane = out.height * out.width * planes.inner;
#pragma omp parallel for schedule(static)
    for (std::int64_t p = 0; p < planes.outer; ++p) {
      std::fill_n(a.dx + p * in_plane, in_plane, 0.0F);
      for (std::int64_t i = 0; i < out.height; ++i) {
        for (std::int64_t j = 0; j < out.width; ++j) {
          const std::int64_t in = p * in_plane + position(i, j) * planes.inner;
          const std::int64_t at = p * out_plane + (i * out.width + j) * planes.inner;
          if (spec_.kind == PoolSpec::Kind::average) {
            spread_average(a.dy + at, planes.inner, a.dx + in);
          } else {
            send_to_maximum(a.dy + at, a.y + at, a.x + in, planes.inner, a.dx + in);
          }
        }
      }
    }
  }

 private:
  std::int64_t position(std::int64_t i, std::int64_t j) const {
    return i * spec_.stride * spec_.input.width + j * spec_.stride;
  }
  // Calls f(offset of a row's window position in floats) for each position of a window.
  template <class F>
  void each_position(std::int64_t inner, F f) const {
    for (std::int64_t r = 0; r < spec_.window; ++r) {
      for (std::int64_t s = 0; s < spec_.window; ++s) f((r * spec_.input.width + s) * inner);
    }
  }

  void pool_window(const float* x, std::int64_t inner, float* y) const {
    const bool average = spec_.kind == PoolSpec::Kind::average;
    std::fill_n(y, inner, average ? 0.0F : below_all());
    each_position(inner, [&](std::int64_t at) {
      for (std::int64_t k = 0; k < inner; ++k) y[k] = average ? y[k] + x[at + k] : larger(y[k], x[at + k]);
    });
    if (!average) return;
    const float share = 1.0F / static_cast<float>(spec_.window * spec_.window);
    for (std::int64_t k = 0; k < inner; ++k) y[k] *= share;
  }

  void spread_average(const float* dy, std::int64_t inner, float* dx) const {
    const float share = 1.0F / static_cast<float>(spec_.window * spec_.window);
    each_position(inner, [&](std::int64_t at) {
      for (std::int64_t k = 0; k < inner; ++k) dx[at + k] += share * dy[k];
    });
  }

  // The first of equal maxima takes the gradient, as in PyTorch.
  void send_to_maximum(const float* dy, const float* y, const float* x, std::int64_t inner, float* dx) const {
    for (std::int64_t k = 0; k < inner; ++k) {
      bool sent = false;
      each_position(inner, [&](std::int64_t at) {
        if (sent || x[at + k] != y[k]) return;
        dx[at + k] += dy[k];
        sent = true;
      });
    }
  }

  PoolSpec spec_;
  Layout layout_;
};

}  // namespace

std::unique_ptr<Op> make_pool(const PoolSpec& spec, Layout layout) { return std::make_unique<Pool>(spec, layout); }

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
