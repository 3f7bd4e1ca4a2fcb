#include "data/images/resample_exact.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "base/error.h"
#include "data/images/every_vector_width.h"

namespace ddp {
namespace {

// Pillow's fixed point: 32 bits less 8 of a pixel and 2 for sums beyond 255.
constexpr int kExactBits = 22;
constexpr std::int32_t kExactHalf = 1 << (kExactBits - 1);
// Added before truncation towards zero, as by Pillow.
constexpr double kPillowHalf = 0.5;

std::uint8_t level_of(std::int32_t sum) { return static_cast<std::uint8_t>(std::clamp(sum >> kExactBits, 0, 255)); }

double bilinear_weight(double x) { return std::max(0.0, 1 - std::abs(x)); }

double bicubic_weight(double x) {
  constexpr double kSharpness = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kSharpness + 2) * x - (kSharpness + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * kSharpness;
  return 0;
}

// As in Pillow (src/libImaging/Resample.c, precompute_coeffs), whose box has single precision.
void make_exact_filter(ExactFilter& filter, std::vector<double>& scratch, std::int64_t in, double begin, double length,
                       std::int64_t out, Interpolation interpolation) {
  const auto first = static_cast<float>(begin);
  const auto last = static_cast<float>(begin + length);
  const double scale = static_cast<double>(last - first) / static_cast<double>(out);
  const bool cubic = interpolation == Interpolation::bicubic;
  const double widened = std::max(scale, 1.0);
  const double support = (cubic ? 2.0 : 1.0) * widened;
  const double inverse = 1.0 / widened;
  filter.taps = static_cast<std::int64_t>(std::ceil(support)) * 2 + 1;
  const auto taps = static_cast<std::size_t>(filter.taps);
  filter.starts.assign(static_cast<std::size_t>(out), 0);
  filter.counts.assign(static_cast<std::size_t>(out), 0);
  filter.weights.assign(static_cast<std::size_t>(out) * taps, 0);
  scratch.resize(taps);
  for (std::size_t i = 0; i < static_cast<std::size_t>(out); ++i) {
    const double centre = static_cast<double>(first) + (static_cast<double>(i) + 0.5) * scale;
    const std::int64_t low = std::max<std::int64_t>(0, static_cast<std::int64_t>(centre - support + kPillowHalf));
    const std::int64_t high = std::min(in, static_cast<std::int64_t>(centre + support + kPillowHalf));
    DDP_ASSERT(low < high && high - low <= filter.taps);
    double sum = 0;
    for (std::int64_t k = 0; k < high - low; ++k) {
      const double apart = (static_cast<double>(k + low) - centre + 0.5) * inverse;
      const double weight = cubic ? bicubic_weight(apart) : bilinear_weight(apart);
      scratch[static_cast<std::size_t>(k)] = weight;
      sum += weight;
    }
    filter.starts[i] = static_cast<std::int32_t>(low);
    filter.counts[i] = static_cast<std::int32_t>(high - low);
    for (std::size_t k = 0; k < static_cast<std::size_t>(high - low); ++k) {
      const double weight = sum != 0.0 ? scratch[k] / sum : scratch[k];
      const double half = weight < 0 ? -kPillowHalf : kPillowHalf;
      filter.weights[i * taps + k] = static_cast<std::int32_t>(half + weight * (1 << kExactBits));
    }
  }
}

// One row of pixels to [channels][width].
template <std::size_t kChannels>
void resize_row(const std::uint8_t* row, const ExactFilter& filter, std::size_t width, std::uint8_t* out) {
  const auto taps = static_cast<std::size_t>(filter.taps);
  for (std::size_t x = 0; x < width; ++x) {
    const std::uint8_t* at = row + static_cast<std::size_t>(filter.starts[x]) * kChannels;
    const std::int32_t* weights = filter.weights.data() + x * taps;
    std::array<std::int32_t, kChannels> sums;
    sums.fill(kExactHalf);
    for (std::int32_t k = 0; k < filter.counts[x]; ++k, at += kChannels) {
      for (std::size_t c = 0; c < kChannels; ++c) sums[c] += at[c] * weights[k];
    }
    for (std::size_t c = 0; c < kChannels; ++c) out[c * width + x] = level_of(sums[c]);
  }
}

DDP_EVERY_VECTOR_WIDTH void add_exact_row(const std::uint8_t* row, std::int32_t weight, std::size_t count,
                                          std::int32_t* sums) {
  for (std::size_t i = 0; i < count; ++i) sums[i] += row[i] * weight;
}

}  // namespace

void ExactResampler::run(const RasterView& source, const Region& region, const Shape& shape,
                         std::span<std::uint8_t> out, Interpolation filter) {
  DDP_ASSERT(source.channels == shape.channels && out.size() == shape.size());
  DDP_ASSERT(source.channels == 1 || source.channels == 3);
  DDP_ASSERT(region.width > 0 && region.height > 0 && !region.mirrored);
  make_exact_filter(horizontal_, scratch_, source.width, region.x, region.width, shape.width, filter);
  make_exact_filter(vertical_, scratch_, source.height, region.y, region.height, shape.height, filter);
  const auto width = static_cast<std::size_t>(shape.width);
  const auto channels = static_cast<std::size_t>(shape.channels);
  const std::size_t resized = width * channels;
  const std::int32_t begin = vertical_.starts.front();
  const std::int32_t end = vertical_.starts.back() + vertical_.counts.back();
  rows_.resize(static_cast<std::size_t>(end - begin) * resized);
  for (std::int32_t y = begin; y < end; ++y) {
    const std::uint8_t* row =
        source.pixels + static_cast<std::size_t>(y) * static_cast<std::size_t>(source.width) * channels;
    std::uint8_t* to = rows_.data() + static_cast<std::size_t>(y - begin) * resized;
    if (channels == 1) {
      resize_row<1>(row, horizontal_, width, to);
    } else {
      resize_row<3>(row, horizontal_, width, to);
    }
  }
  sums_.resize(resized);
  for (std::size_t y = 0; y < static_cast<std::size_t>(shape.height); ++y) {
    std::fill(sums_.begin(), sums_.end(), kExactHalf);
    const std::int32_t* weights = vertical_.weights.data() + y * static_cast<std::size_t>(vertical_.taps);
    for (std::int32_t k = 0; k < vertical_.counts[y]; ++k) {
      const auto row = static_cast<std::size_t>(vertical_.starts[y] + k - begin);
      add_exact_row(rows_.data() + row * resized, weights[k], resized, sums_.data());
    }
    for (std::size_t c = 0; c < channels; ++c) {
      std::uint8_t* to = out.data() + (c * static_cast<std::size_t>(shape.height) + y) * width;
      for (std::size_t x = 0; x < width; ++x) to[x] = level_of(sums_[c * width + x]);
    }
  }
}

}  // namespace ddp
