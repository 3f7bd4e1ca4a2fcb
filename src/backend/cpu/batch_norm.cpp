#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "backend/cpu/lanes_kernels.h"
#include "backend/cpu/operators.h"
#include "backend/cpu/planes.h"
#include "backend/cpu/values.h"
#include "backend/workspace.h"
#include "base/error.h"

namespace ddp {
namespace {

using lanes::NormKernels;

// The mean as a sum of two floats, since one is not precise enough if it is large compared with the deviations, and 1 /
// sqrt(variance + epsilon).
struct Normaliser {
  float mean = 0;
  float rest = 0;
  float inverse = 0;
};

struct Sums {
  double first = 0;
  double second = 0;
};

// Shared by all layouts: the computations from a channel's sums.
class BatchNorm : public Op {
 public:
  BatchNorm(const BatchNormSpec& spec, Layout layout)
      : spec_(spec), layout_(layout), kernels_(lanes::kernels().norm), activation_(index_of(spec.activation)) {
    shared_ = workspace_.add<double>(spec.synchronized ? 2 * spec.shape.channels + 1 : 0);
  }

  std::size_t workspace_bytes() const override { return workspace_.bytes(); }
  std::size_t saved_bytes() const override {
    return static_cast<std::size_t>(spec_.shape.channels) * sizeof(Normaliser);
  }
  bool backward_reads_x() const override { return true; }
  bool backward_reads_y() const override { return spec_.activation != Activation::none; }

 protected:
  static std::size_t index_of(Activation activation) {
    DDP_ASSERT(activation == Activation::none || activation == Activation::relu || activation == Activation::relu6);
    return static_cast<std::size_t>(activation);
  }

  std::int64_t plane() const { return spec_.shape.height * spec_.shape.width; }
  static Normaliser* normalisers(std::byte* saved) { return static_cast<Normaliser*>(static_cast<void*>(saved)); }

  Normaliser normaliser(double mean, double variance) const {
    const auto nearest = static_cast<float>(mean);
    return {nearest, static_cast<float>(mean - static_cast<double>(nearest)),
            static_cast<float>(1 / std::sqrt(variance + static_cast<double>(spec_.epsilon)))};
  }
  Normaliser running(std::int64_t channel, const float* statistics) const {
    return normaliser(static_cast<double>(statistics[channel]),
                      static_cast<double>(statistics[spec_.shape.channels + channel]));
  }
  // The elements of a channel in the active samples.
  double count_of(std::int64_t active) const { return static_cast<double>(active * plane()); }

  // Over all logical shards.
  struct Whole {
    const double* sums = nullptr;  // [channels][2]
    double count = 0;

    Sums of(std::int64_t channel) const { return {sums[2 * channel], sums[2 * channel + 1]}; }
  };
  // Adds the sums of all channels, own(channel) in this shard, and the numbers of elements.
  template <class F>
  Whole over_shards(const SumOverShards* sums, std::int64_t active, std::byte* workspace, F own) const {
    double* const all = shared_.in(workspace);
    const std::int64_t channels = spec_.shape.channels;
#pragma omp parallel for schedule(static)
    for (std::int64_t c = 0; c < channels; ++c) {
      const Sums mine = own(c);
      all[2 * c] = mine.first;
      all[2 * c + 1] = mine.second;
    }
    all[2 * channels] = count_of(active);
    if (sums != nullptr) (*sums)(std::span(all, static_cast<std::size_t>(2 * channels + 1)));
    return {all, all[2 * channels]};
  }

  // The statistics of `count` elements, from the sums of x and of x^2; updates the running statistics.
  Normaliser measured(std::int64_t channel, const Sums& sums, double count, float* statistics) const {
    if (count == 0) return running(channel, statistics);
    const double mean = sums.first / count;
    const double variance = std::max(0.0, sums.second / count - mean * mean);
    const auto move = [&](float& value, double towards) {
      const auto old = static_cast<double>(value);
      value = static_cast<float>(old + static_cast<double>(spec_.momentum) * (towards - old));
    };
    move(statistics[channel], mean);
    move(statistics[spec_.shape.channels + channel], variance * count / std::max(1.0, count - 1));
    return normaliser(mean, variance);
  }

  // y = scale * (x - mean) + shift.
  struct Line {
    float scale, shift;
  };
  template <class Arguments>
  Line line(std::int64_t channel, const Normaliser& n, const Arguments& a) const {
    const float scale = a.parameters[0][channel] * n.inverse;
    return {scale, a.parameters[1][channel] - scale * n.rest};
  }

  // dx = scale * ((dy - offset) - slope * (x - mean)).
  struct Slope {
    float scale, offset, slope;
  };
  // The sum of dy * (x - mean) / deviation, from those of dy and of dy * (x - n.mean).
  static double product(const Normaliser& n, const Sums& sums) {
    return (sums.second - static_cast<double>(n.rest) * sums.first) * static_cast<double>(n.inverse);
  }
  // Writes the gradients of a channel's weight and bias, from these sums.
  static void write_gradients(std::int64_t channel, const Normaliser& n, const Sums& sums, const BackwardArguments& a) {
    a.parameter_gradients[0][channel] = static_cast<float>(product(n, sums));
    a.parameter_gradients[1][channel] = static_cast<float>(sums.first);
  }
  // From the sums over the `elements` of which the statistics are.
  static Slope slope_of(std::int64_t channel, const Normaliser& n, const Sums& sums, double elements,
                        const BackwardArguments& a) {
    const double count = std::max(1.0, elements);
    const double slope = product(n, sums) * static_cast<double>(n.inverse) / count;
    return {a.parameters[0][channel] * n.inverse,
            static_cast<float>(sums.first / count - static_cast<double>(n.rest) * slope), static_cast<float>(slope)};
  }

  BatchNormSpec spec_;
  Layout layout_;
  const NormKernels& kernels_;
  std::size_t activation_;
  Workspace workspace_;
  Workspace::Part<double> shared_;
};

// plain and lanes16: each row belongs to one channel. One thread processes a whole channel, so that its values are
// still in the cache when they are read again.
// Value: the element of activations.
template <class Value>
class RowBatchNorm final : public BatchNorm {
 public:
  RowBatchNorm(const BatchNormSpec& spec, Layout layout)
      : BatchNorm(spec, layout),
        row_(of_values<Value>(kernels_.row, kernels_.row_bf16)),
        mask_from_x_(activation_ != 0 && !spec.add) {}

  bool backward_reads_y() const override { return BatchNorm::backward_reads_y() && !mask_from_x_; }

  void forward(const ForwardArguments& a) override {
    const std::int64_t computed = rows(computed_samples(a.active, spec_.batch, layout_));
    const auto moments = [&](std::int64_t c) {
      return sum(a.active, [&](std::int64_t row, double* sums) {
        row_.moments(raw(values<Value>(a.x) + offset(row, c)), row_size(), sums);
      });
    };
    Whole whole;
    const bool shared = a.training && spec_.synchronized;
    if (shared) whole = over_shards(a.sums, a.active, a.workspace, moments);
#pragma omp parallel for schedule(static)
    for (std::int64_t c = 0; c < spec_.shape.channels; ++c) {
      Normaliser n;
      if (a.training) {
        n = shared ? measured(c, whole.of(c), whole.count, a.statistics)
                   : measured(c, moments(c), count_of(a.active), a.statistics);
        normalisers(a.saved)[c] = n;
      } else {
        n = running(c, a.statistics);
      }
      const Line l = line(c, n, a);
      for (std::int64_t row = 0; row < computed; ++row) {
        const std::int64_t at = offset(row, c);
        row_.forward[activation_]({raw(values<Value>(a.x) + at), spec_.add ? raw(values<Value>(a.x2) + at) : nullptr,
                                   raw(values<Value>(a.y) + at), row_size(), n.mean, l.scale, l.shift});
      }
    }
  }

  void backward(const BackwardArguments& a) override {
    using Row = lanes::NormRowGradient<Raw<Value>>;
    const auto point = [&](Row& r, std::int64_t row, std::int64_t c) {
      const std::int64_t at = offset(row, c);
      r.x = raw(values<Value>(a.x) + at);
      r.y = backward_reads_y() ? raw(values<Value>(a.y) + at) : nullptr;
      r.dy = raw(values<Value>(a.dy) + at);
      r.dx = raw(values<Value>(a.dx) + at);
      r.dx2 = spec_.add ? raw(values<Value>(a.dx2) + at) : nullptr;
    };
    const auto row_of = [&](std::int64_t c) {
      const Normaliser& n = normalisers(a.saved)[c];
      const Line l = line(c, n, a);
      return Row{nullptr, nullptr, nullptr, nullptr, nullptr, row_size(), n.mean, 0, 0, 0, l.scale, l.shift};
    };
    // Writes the gradients of the channel's weight and bias.
    const auto products = [&](std::int64_t c) {
      Row r = row_of(c);
      const Sums total = sum(a.active, [&](std::int64_t row, double* sums) {
        point(r, row, c);
        row_.products[mask_from_x_ ? 1 : 0][activation_](r, sums);
      });
      write_gradients(c, normalisers(a.saved)[c], total, a);
      return total;
    };
    Whole whole;
    if (spec_.synchronized) whole = over_shards(a.sums, a.active, a.workspace, products);
#pragma omp parallel for schedule(static)
    for (std::int64_t c = 0; c < spec_.shape.channels; ++c) {
      const Normaliser n = normalisers(a.saved)[c];
      Row r = row_of(c);
      const Slope s = spec_.synchronized ? slope_of(c, n, whole.of(c), whole.count, a)
                                         : slope_of(c, n, products(c), count_of(a.active), a);
      r.scale = s.scale;
      r.offset = s.offset;
      r.slope = s.slope;
      for (std::int64_t row = 0; row < rows(a.active); ++row) {
        point(r, row, c);
        row_.backward[mask_from_x_ ? 1 : 0][activation_](r);
        clear_lanes(r.dx, lanes_of(row, a.active));
      }
    }
    clear_rest_of(values<Value>(a.dx), a.active);
    if (spec_.add) clear_rest_of(values<Value>(a.dx2), a.active);
  }

 private:
  bool lanes16() const { return layout_ == Layout::lanes16; }
  std::int64_t row_size() const { return lanes16() ? kLanes * plane() : plane(); }
  std::int64_t rows(std::int64_t samples) const { return lanes16() ? (samples + kLanes - 1) / kLanes : samples; }
  std::int64_t offset(std::int64_t row, std::int64_t channel) const {
    return (row * spec_.shape.channels + channel) * row_size();
  }
  // Which of the 16 positions modulo 16 in a row are active.
  std::int64_t lanes_of(std::int64_t row, std::int64_t active) const {
    return lanes16() ? std::min(kLanes, active - row * kLanes) : kLanes;
  }
  void clear_lanes(Raw<Value>* dx, std::int64_t lanes) const {
    if (lanes == kLanes) return;
    for (std::int64_t i = 0; i < row_size(); i += kLanes) std::fill(dx + i + lanes, dx + i + kLanes, Raw<Value>{});
  }
  void clear_rest_of(Value* data, std::int64_t active) const {
    std::fill(data + rows(active) * spec_.shape.channels * row_size(),
              data + stored_elements(spec_.batch, spec_.shape, layout_), Value{});
  }

  // The sums over a channel's active values, row by row: an order that is independent of the number of threads.
  template <class F>
  Sums sum(std::int64_t active, F add_row) const {
    Sums total;
    for (std::int64_t row = 0; row < rows(active); ++row) {
      std::array<double, std::size_t{2} * lanes::kNormLanes> sums{};
      add_row(row, sums.data());
      for (std::size_t lane = 0; lane < static_cast<std::size_t>(lanes_of(row, active)); ++lane) {
        total.first += sums[lane];
        total.second += sums[lane + lanes::kNormLanes];
      }
    }
    return total;
  }

  const lanes::NormRowKernels<Raw<Value>>& row_;
  bool mask_from_x_;  // of the activation, in backward
};

// nhwc: every row contains all channels. Parts with a fixed number of rows are summed separately, then added in order.
class ChannelsBatchNorm final : public BatchNorm {
 public:
  ChannelsBatchNorm(const BatchNormSpec& spec, Layout layout) : BatchNorm(spec, layout) {
    const std::int64_t all = spec.batch * plane();
    part_rows_ = std::max(kLeastRows, (all + kMostParts - 1) / kMostParts);
    sums_ = workspace_.add<double>(parts(all) * 2 * spec.shape.channels);
    for (auto& factor : factors_) factor = workspace_.add<float>(spec.shape.channels);
  }

  void forward(const ForwardArguments& a) override {
    if (a.training) {
      sum_parts(a.active, a.workspace, [&](std::int64_t first, std::int64_t rows, double* sums) {
        kernels_.channel_moments(a.x.fp32() + first * channels(), rows, channels(), sums);
      });
    }
    const auto own = [&](std::int64_t c) { return total(c, a.active, a.workspace); };
    const bool shared = a.training && spec_.synchronized;
    Whole whole;
    if (shared) whole = over_shards(a.sums, a.active, a.workspace, own);
    const auto factor = factors(a.workspace);
    for (std::int64_t c = 0; c < channels(); ++c) {
      const Normaliser n = shared       ? measured(c, whole.of(c), whole.count, a.statistics)
                           : a.training ? measured(c, own(c), count_of(a.active), a.statistics)
                                        : running(c, a.statistics);
      if (a.training) normalisers(a.saved)[c] = n;
      const Line l = line(c, n, a);
      factor[0][c] = n.mean;
      factor[1][c] = l.scale;
      factor[2][c] = l.shift;
    }
    each_part(spec_.batch * plane(), [&](std::int64_t, std::int64_t first, std::int64_t rows) {
      const std::int64_t at = first * channels();
      kernels_.channel_forward[activation_]({a.x.fp32() + at, spec_.add ? a.x2.fp32() + at : nullptr, a.y.fp32() + at,
                                             rows, channels(), factor[0], factor[1], factor[2]});
    });
  }

  void backward(const BackwardArguments& a) override {
    const auto factor = factors(a.workspace);
    const auto task = [&](std::int64_t first, std::int64_t rows) {
      const std::int64_t at = first * channels();
      return lanes::NormChannelsGradient{a.x.fp32() + at,
                                         activation_ == 0 ? nullptr : a.y.fp32() + at,
                                         a.dy.fp32() + at,
                                         a.dx.fp32() + at,
                                         spec_.add ? a.dx2.fp32() + at : nullptr,
                                         rows,
                                         channels(),
                                         factor[0],
                                         factor[1],
                                         factor[2],
                                         factor[3]};
    };
    for (std::int64_t c = 0; c < channels(); ++c) factor[0][c] = normalisers(a.saved)[c].mean;
    sum_parts(a.active, a.workspace, [&](std::int64_t first, std::int64_t rows, double* sums) {
      kernels_.channel_products[activation_](task(first, rows), sums);
    });
    const auto own = [&](std::int64_t c) {
      const Sums sums = total(c, a.active, a.workspace);
      write_gradients(c, normalisers(a.saved)[c], sums, a);
      return sums;
    };
    Whole whole;
    if (spec_.synchronized) whole = over_shards(a.sums, a.active, a.workspace, own);
    for (std::int64_t c = 0; c < channels(); ++c) {
      const Normaliser& n = normalisers(a.saved)[c];
      const Slope s = spec_.synchronized ? slope_of(c, n, whole.of(c), whole.count, a)
                                         : slope_of(c, n, own(c), count_of(a.active), a);
      factor[1][c] = s.scale;
      factor[2][c] = s.offset;
      factor[3][c] = s.slope;
    }
    each_part(a.active * plane(), [&](std::int64_t, std::int64_t first, std::int64_t rows) {
      kernels_.channel_backward[activation_](task(first, rows));
    });
    const std::int64_t active = a.active * spec_.shape.elements();
    const std::int64_t all = spec_.batch * spec_.shape.elements();
    std::fill(a.dx.fp32() + active, a.dx.fp32() + all, 0.0F);
    if (spec_.add) std::fill(a.dx2.fp32() + active, a.dx2.fp32() + all, 0.0F);
  }

 private:
  static constexpr std::int64_t kLeastRows = 64;
  static constexpr std::int64_t kMostParts = 64;

  std::int64_t channels() const { return spec_.shape.channels; }
  std::int64_t parts(std::int64_t rows) const { return (rows + part_rows_ - 1) / part_rows_; }
  std::array<float*, 4> factors(std::byte* workspace) const {
    return {factors_[0].in(workspace), factors_[1].in(workspace), factors_[2].in(workspace), factors_[3].in(workspace)};
  }

  // Calls f(part, first row, rows) for the parts of all rows.
  template <class F>
  void each_part(std::int64_t all, F f) const {
#pragma omp parallel for schedule(static)
    for (std::int64_t part = 0; part < parts(all); ++part) {
      const std::int64_t first = part * part_rows_;
      f(part, first, std::min(part_rows_, all - first));
    }
  }
  template <class F>
  void sum_parts(std::int64_t active, std::byte* workspace, F f) const {
    double* sums = sums_.in(workspace);
    each_part(active * plane(), [&](std::int64_t part, std::int64_t first, std::int64_t rows) {
      f(first, rows, sums + part * 2 * channels());
    });
  }
  Sums total(std::int64_t channel, std::int64_t active, std::byte* workspace) const {
    const double* sums = sums_.in(workspace);
    Sums all;
    for (std::int64_t part = 0; part < parts(active * plane()); ++part) {
      all.first += sums[part * 2 * channels() + channel];
      all.second += sums[(part * 2 + 1) * channels() + channel];
    }
    return all;
  }

  std::int64_t part_rows_ = 0;
  Workspace::Part<double> sums_;
  std::array<Workspace::Part<float>, 4> factors_;
};

}  // namespace

std::unique_ptr<Op> make_batch_norm(const BatchNormSpec& spec, Layout layout, Element element) {
  // In plain feature vectors, rows contain all channels too.
  const bool rows_of_channels =
      layout == Layout::nhwc || (layout == Layout::plain && spec.shape.height == 1 && spec.shape.width == 1);
  if (rows_of_channels) {
    return element == Element::fp32 ? std::make_unique<ChannelsBatchNorm>(spec, layout) : nullptr;
  }
  if (element == Element::bf16) return std::make_unique<RowBatchNorm<Bf16>>(spec, layout);
  return std::make_unique<RowBatchNorm<float>>(spec, layout);
}

}  // namespace ddp
