// Batch normalisation of one channel in the layouts whose rows belong to one channel each, plain and lanes16.
//
//   const RowNorm<float> norm(spec, Layout::lanes16);
//   const NormSums sums = norm.moments({x, step}, active);                  // row r is x + r * step
//   norm.forward(normaliser, line, {{x, step}, {}, {y, step}}, active);
//
// Rows may be anywhere, and results may overwrite what they are computed from.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backend/cpu/device/values.h"
#include "backend/cpu/norm/norm_arithmetic.h"
#include "backend/cpu/norm/norm_kernels.h"
#include "backend/tensor.h"
#include "base/error.h"

namespace ddp {

// The rows of a channel, `step` values apart; or none.
template <class Value>
struct ChannelRows {
  Value* first = nullptr;
  std::int64_t step = 0;

  Value* operator[](std::int64_t row) const { return first == nullptr ? nullptr : first + row * step; }
  // NOLINTNEXTLINE(google-explicit-constructor): as pointers convert.
  operator ChannelRows<const Value>() const requires(!std::is_const_v<Value>) { return {first, step}; }
};

// Value: the element of activations.
template <class Value>
class RowNorm {
 public:
  struct Forward {
    ChannelRows<const Value> x, x2;
    ChannelRows<Value> y;
  };
  // Without y, the activation's mask follows from x.
  struct Backward {
    ChannelRows<const Value> x, y, dy;
    ChannelRows<Value> dx, dx2;
  };
  // Values [begin, end) of a row.
  struct Piece {
    std::int64_t row, begin, end;
  };

  RowNorm(const BatchNormSpec& spec, Layout layout)
      : lanes16_(layout == Layout::lanes16),
        size_((lanes16_ ? kLanes : 1) * spec.shape.height * spec.shape.width),
        activation_(index_of(spec.activation)),
        kernels_(of_values<Value>(lanes::norm_kernels().row, lanes::norm_kernels().row_bf16)) {}

  static std::size_t index_of(Activation activation) {
    DDP_ASSERT(activation == Activation::none || activation == Activation::relu || activation == Activation::relu6);
    return static_cast<std::size_t>(activation);
  }

  // The values of a row, and the rows of so many samples.
  std::int64_t size() const { return size_; }
  std::int64_t rows(std::int64_t samples) const { return lanes16_ ? (samples + kLanes - 1) / kLanes : samples; }

  // Over a channel's active values, row by row: an order that is independent of the number of threads. add(row, sums) adds a row's
  // by moments or products of its pieces.
  template <class F>
  NormSums sum(std::int64_t active, F add) const {
    NormSums total;
    for (std::int64_t row = 0; row < rows(active); ++row) add_row(row, active, total, add);
    return total;
  }
  // The same for one row, after those before it.
  template <class F>
  void add_row(std::int64_t row, std::int64_t active, NormSums& total, F add) const {
    std::array<double, std::size_t{2} * lanes::kNormLanes> sums{};
    add(row, sums.data());
    for (std::size_t lane = 0; lane < static_cast<std::size_t>(lanes_of(row, active)); ++lane) {
      total.first += sums[lane];
      total.second += sums[lane + lanes::kNormLanes];
    }
  }

  // Sums of x and x^2 over the active samples.
  NormSums moments(ChannelRows<const Value> x, std::int64_t active) const {
    return sum(active, [&](std::int64_t row, double* sums) { add_moments(x[row], size_, sums); });
  }
  void add_moments(const Value* x, std::int64_t count, double* sums) const { kernels_.moments(raw(x), count, sums); }

  void forward(const Normaliser& n, const NormLine& line, const Forward& a, std::int64_t samples) const {
    for (std::int64_t row = 0; row < rows(samples); ++row) {
      kernels_.forward[activation_]({raw(a.x[row]), a.x2.first == nullptr ? nullptr : raw(a.x2[row]), raw(a.y[row]),
                                     size_, n.mean, line.scale, line.shift});
    }
  }
  // Normalises `count` values of a row.
  void forward(const Normaliser& n, const NormLine& line, const Value* x, Value* y, std::int64_t count) const {
    kernels_.forward[activation_]({raw(x), nullptr, raw(y), count, n.mean, line.scale, line.shift});
  }

  // Sums of dy, after the mask of the activation, and of its product with x - n.mean.
  NormSums products(const Normaliser& n, const NormLine& line, const Backward& a, std::int64_t active) const {
    return sum(active, [&](std::int64_t row, double* sums) { add_products(n, line, a, {row, 0, size_}, sums); });
  }
  void add_products(const Normaliser& n, const NormLine& line, const Backward& a, const Piece& piece,
                    double* sums) const {
    kernels_.products[from_x(a)][activation_](task(n, line, {}, a, piece), sums);
  }

  // Zero for the samples of the last row that are not active.
  void backward(const Normaliser& n, const NormLine& line, const NormSlope& slope, const Backward& a,
                std::int64_t active) const {
    for (std::int64_t row = 0; row < rows(active); ++row) backward(n, line, slope, a, {row, 0, size_}, active);
  }
  void backward(const Normaliser& n, const NormLine& line, const NormSlope& slope, const Backward& a,
                const Piece& piece, std::int64_t active) const {
    kernels_.backward[from_x(a)][activation_](task(n, line, slope, a, piece));
    clear_lanes(a.dx[piece.row] + piece.begin, piece.end - piece.begin, lanes_of(piece.row, active));
  }

 private:
  static std::size_t from_x(const Backward& a) { return a.y.first == nullptr ? 1 : 0; }

  template <class V>
  static auto at(ChannelRows<V> rows, const Piece& piece) {
    return rows.first == nullptr ? nullptr : raw(rows[piece.row] + piece.begin);
  }
  lanes::NormRowGradient<Raw<Value>> task(const Normaliser& n, const NormLine& line, const NormSlope& slope,
                                          const Backward& a, const Piece& piece) const {
    return {at(a.x, piece), at(a.y, piece), at(a.dy, piece), at(a.dx, piece), at(a.dx2, piece), piece.end - piece.begin,
            n.mean,         slope.scale,    slope.offset,    slope.slope,     line.scale,       line.shift};
  }

  // Which of the 16 positions modulo 16 in a row are active.
  std::int64_t lanes_of(std::int64_t row, std::int64_t active) const {
    return lanes16_ ? std::min(kLanes, active - row * kLanes) : kLanes;
  }
  static void clear_lanes(Value* dx, std::int64_t count, std::int64_t lanes) {
    if (lanes == kLanes) return;
    for (std::int64_t i = 0; i < count; i += kLanes) std::fill(dx + i + lanes, dx + i + kLanes, Value{});
  }

  bool lanes16_;
  std::int64_t size_;
  std::size_t activation_;
  const lanes::NormRowKernels<Raw<Value>>& kernels_;
};

}  // namespace ddp
