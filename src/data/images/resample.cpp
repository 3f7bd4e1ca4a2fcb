#include "data/images/resample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/error.h"
#include "data/images/every_vector_width.h"
#include "data/images/resample_kernels.h"

namespace ddp {
namespace {

constexpr int kWeightBits = 14;
constexpr std::int32_t kUnitWeight = 1 << kWeightBits;
// Added to non-negative numbers before truncation.
constexpr double kHalf = 0.5;
// One axis of a resize operation.
struct Axis {
  std::int64_t in = 0;  // pixels of the image
  double begin = 0;     // of the region
  double length = 0;
  std::int64_t out = 0;
  bool mirrored = false;
};

// Pillow's bilinear filter (src/libImaging/Resample.c, precompute_coeffs) with weights of 14 bits.
void make_filter(AxisFilter& filter, std::vector<double>& scratch, const Axis& axis) {
  const auto [in, begin, length, out, mirrored] = axis;
  const double scale = length / static_cast<double>(out);
  const double support = std::max(scale, 1.0);
  filter.taps = static_cast<std::int64_t>(std::ceil(support)) * 2 + 1;
  const auto taps = static_cast<std::size_t>(filter.taps);
  filter.starts.assign(static_cast<std::size_t>(out), 0);
  filter.weights.assign(static_cast<std::size_t>(out) * taps, 0);
  scratch.resize(taps);
  // Only pixels that the region touches contribute.
  const std::int64_t low = std::max<std::int64_t>(0, static_cast<std::int64_t>(begin));
  const std::int64_t high = std::min(in, static_cast<std::int64_t>(std::ceil(begin + length)));
  std::int64_t used = 1;
  for (std::int64_t i = 0; i < out; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    const std::int64_t first = std::max(low, static_cast<std::int64_t>(centre - support + kHalf));
    const std::int64_t last = std::min(high, static_cast<std::int64_t>(centre + support + kHalf));
    DDP_ASSERT(first < last && last - first <= filter.taps);
    double sum = 0;
    for (std::int64_t k = first; k < last; ++k) {
      const double apart = std::abs((static_cast<double>(k) - centre + 0.5) / support);
      scratch[static_cast<std::size_t>(k - first)] = std::max(0.0, 1 - apart);
      sum += scratch[static_cast<std::size_t>(k - first)];
    }
    const auto place = static_cast<std::size_t>(mirrored ? out - 1 - i : i);
    std::int16_t* weights = filter.weights.data() + place * taps;
    std::int32_t left = kUnitWeight;
    std::size_t largest = 0;
    const double unit = kUnitWeight / sum;
    for (std::size_t k = 0; k < static_cast<std::size_t>(last - first); ++k) {
      weights[k] = static_cast<std::int16_t>(scratch[k] * unit + kHalf);
      left -= weights[k];
      if (weights[k] > weights[largest]) largest = k;
      if (weights[k] != 0) used = std::max(used, static_cast<std::int64_t>(k) + 1);
    }
    weights[largest] = static_cast<std::int16_t>(weights[largest] + left);
    filter.starts[place] = static_cast<std::int32_t>(first);
  }
  // Most filters need fewer taps than the widest possible one.
  if (used == filter.taps) return;
  for (std::size_t i = 0; i < static_cast<std::size_t>(out); ++i) {
    for (std::size_t k = 0; k < static_cast<std::size_t>(used); ++k) {
      filter.weights[i * static_cast<std::size_t>(used) + k] = filter.weights[i * taps + k];
    }
  }
  filter.taps = used;
}

// Adds a weighted row of bytes to the sums, which are in 64ths.
DDP_EVERY_VECTOR_WIDTH
void add_row(const std::uint8_t* row, std::int16_t weight, std::size_t count, std::int16_t* sums) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto byte = static_cast<std::int16_t>(row[i] << 7);
    sums[i] = static_cast<std::int16_t>(sums[i] + scaled_product(byte, weight));
  }
}

ResampleKernel choose_kernel() {
#if defined(__x86_64__) && defined(__GNUC__)
  if (resample_avx2() != nullptr && __builtin_cpu_supports("avx2") != 0) return resample_avx2();
#endif
  return resample_portable;
}

}  // namespace

void resample_portable(const ResampleTask& task) {
  const auto channels = static_cast<std::size_t>(task.source.channels);
  const std::size_t stride = static_cast<std::size_t>(task.source.width) * channels;
  const auto taps = static_cast<std::size_t>(task.horizontal.taps);
  // Weights beyond the last column are zero but still multiplied.
  task.scratch.assign(stride + taps * channels, 0);
  for (std::int64_t y = 0; y < task.height; ++y) {
    std::fill_n(task.scratch.begin(), stride, std::int16_t{0});
    const std::int16_t* weights = task.vertical.weights.data() + y * task.vertical.taps;
    for (std::int64_t k = 0; k < task.vertical.taps; ++k) {
      if (weights[k] == 0) continue;
      const std::int64_t row = task.vertical.starts[static_cast<std::size_t>(y)] + k;
      add_row(task.source.pixels + static_cast<std::size_t>(row) * stride, weights[k], stride, task.scratch.data());
    }
    for (std::int64_t x = 0; x < task.width; ++x) {
      const auto place = static_cast<std::size_t>(x);
      const std::int16_t* at = task.scratch.data() + static_cast<std::size_t>(task.horizontal.starts[place]) * channels;
      for (std::size_t c = 0; c < channels; ++c) {
        std::int32_t sum = 16;
        for (std::size_t k = 0; k < taps; ++k) {
          sum += scaled_product(at[k * channels + c], task.horizontal.weights[place * taps + k]);
        }
        task.out[(static_cast<std::int64_t>(c) * task.height + y) * task.width + x] =
            static_cast<std::uint8_t>(std::clamp(sum >> 5, 0, 255));
      }
    }
  }
}

void Resampler::run(const RasterView& source, const Region& region, const Shape& shape, std::span<std::uint8_t> out) {
  DDP_ASSERT(source.channels == shape.channels && out.size() == shape.size());
  DDP_ASSERT(region.width > 0 && region.height > 0);
  static const ResampleKernel kernel = choose_kernel();
  make_filter(horizontal_, scratch_, {source.width, region.x, region.width, shape.width, region.mirrored});
  make_filter(vertical_, scratch_, {source.height, region.y, region.height, shape.height, false});
  kernel({source, horizontal_, vertical_, shape.width, shape.height, out.data(), row_});
}

}  // namespace ddp
