#include "data/resample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "base/error.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

// The loop over a row is compiled for AVX2 too, and the processor's own is taken when the program starts.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define DDP_EVERY_VECTOR_WIDTH __attribute__((target_clones("avx2", "default")))
#else
#define DDP_EVERY_VECTOR_WIDTH
#endif

namespace ddp {
namespace {

constexpr int kWeightBits = 14;
constexpr std::int32_t kOne = 1 << kWeightBits;
// Fractional bits of a row between the two passes: 255 * 64 fits into 15 bits.
constexpr int kRowBits = 6;
// Elements behind a row that vector loads may touch.
constexpr std::size_t kRowPadding = 32;

// Pillow's bilinear filter (src/libImaging/Resample.c, precompute_coeffs) with weights of 14 bits.
void make_filter(AxisFilter& filter, std::vector<double>& scratch, std::int64_t in, double begin, double length,
                 std::int64_t out, bool mirrored, std::int64_t multiple) {
  const double scale = length / static_cast<double>(out);
  const double support = std::max(scale, 1.0);
  const auto reach = static_cast<std::int64_t>(std::ceil(support)) * 2 + 1;
  filter.taps = (reach + multiple - 1) / multiple * multiple;
  const auto taps = static_cast<std::size_t>(filter.taps);
  filter.starts.assign(static_cast<std::size_t>(out), 0);
  filter.weights.assign(static_cast<std::size_t>(out) * taps, 0);
  scratch.resize(taps);
  std::int64_t used = 1;
  for (std::int64_t i = 0; i < out; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    const std::int64_t first = std::max<std::int64_t>(0, static_cast<std::int64_t>(centre - support + 0.5));
    const std::int64_t last = std::min(in, static_cast<std::int64_t>(centre + support + 0.5));
    DDP_ASSERT(first < last && last - first <= filter.taps);
    double sum = 0;
    for (std::int64_t k = first; k < last; ++k) {
      const double apart = std::abs((static_cast<double>(k) - centre + 0.5) / support);
      scratch[static_cast<std::size_t>(k - first)] = std::max(0.0, 1 - apart);
      sum += scratch[static_cast<std::size_t>(k - first)];
    }
    const auto place = static_cast<std::size_t>(mirrored ? out - 1 - i : i);
    std::int16_t* weights = filter.weights.data() + place * taps;
    std::int32_t left = kOne;
    std::size_t largest = 0;
    for (std::size_t k = 0; k < static_cast<std::size_t>(last - first); ++k) {
      weights[k] = static_cast<std::int16_t>(std::lround(scratch[k] / sum * kOne));
      left -= weights[k];
      if (weights[k] > weights[largest]) largest = k;
      if (weights[k] != 0) used = std::max(used, static_cast<std::int64_t>(k) + 1);
    }
    weights[largest] = static_cast<std::int16_t>(weights[largest] + left);
    filter.starts[place] = static_cast<std::int32_t>(first);
  }
  // Most filters need fewer taps than the widest that is possible.
  const std::int64_t fewer = (used + multiple - 1) / multiple * multiple;
  if (fewer == filter.taps) return;
  for (std::size_t i = 0; i < static_cast<std::size_t>(out); ++i) {
    for (std::size_t k = 0; k < static_cast<std::size_t>(fewer); ++k) {
      filter.weights[i * static_cast<std::size_t>(fewer) + k] = filter.weights[i * taps + k];
    }
  }
  filter.taps = fewer;
}

// (a * b / 2^15), rounded: one instruction for a whole vector.
inline std::int32_t scaled(std::int32_t a, std::int32_t b) { return ((a * b >> 14) + 1) >> 1; }

// to = (from or zero) + the sum of four rows by their weights, in 64ths.
DDP_EVERY_VECTOR_WIDTH
void add_rows(const std::uint8_t* const* rows, const std::int16_t* weights, std::size_t count, bool first,
              std::int16_t* to) {
  const std::uint8_t* r0 = rows[0];
  const std::uint8_t* r1 = rows[1];
  const std::uint8_t* r2 = rows[2];
  const std::uint8_t* r3 = rows[3];
  const std::int16_t w0 = weights[0];
  const std::int16_t w1 = weights[1];
  const std::int16_t w2 = weights[2];
  const std::int16_t w3 = weights[3];
  for (std::size_t i = 0; i < count; ++i) {
    const auto a = static_cast<std::int16_t>(scaled(static_cast<std::int16_t>(r0[i] << 7), w0));
    const auto b = static_cast<std::int16_t>(scaled(static_cast<std::int16_t>(r1[i] << 7), w1));
    const auto c = static_cast<std::int16_t>(scaled(static_cast<std::int16_t>(r2[i] << 7), w2));
    const auto d = static_cast<std::int16_t>(scaled(static_cast<std::int16_t>(r3[i] << 7), w3));
    const std::int32_t before = first ? 0 : to[i];
    to[i] = static_cast<std::int16_t>(before + a + b + c + d);
  }
}

constexpr int kOutShift = kWeightBits + kRowBits;

std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp((sum + (1 << (kOutShift - 1))) >> kOutShift, 0, 255));
}

// A row of pixels of three channels to the three planes' rows, `plane` bytes apart.
void across_three(const std::int16_t* row, const AxisFilter& filter, std::size_t out, std::size_t plane,
                  std::uint8_t* to) {
  const auto taps = static_cast<std::size_t>(filter.taps);
  for (std::size_t x = 0; x < out; ++x) {
    const std::int16_t* at = row + static_cast<std::ptrdiff_t>(filter.starts[x]) * 3;
    const std::int16_t* weights = filter.weights.data() + x * taps;
#ifdef __SSE2__
    // Two neighbours at a time: their channels are interleaved, and multiplied and added in pairs.
    __m128i sum = _mm_set1_epi32(1 << (kOutShift - 1));
    for (std::size_t k = 0; k < taps; k += 2, at += 6) {
      std::int32_t pair = 0;
      std::memcpy(&pair, weights + k, sizeof pair);
      const __m128i one = _mm_loadl_epi64(static_cast<const __m128i*>(static_cast<const void*>(at)));
      const __m128i two = _mm_loadl_epi64(static_cast<const __m128i*>(static_cast<const void*>(at + 3)));
      sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_unpacklo_epi16(one, two), _mm_set1_epi32(pair)));
    }
    sum = _mm_srai_epi32(sum, kOutShift);
    sum = _mm_packs_epi32(sum, sum);
    const auto bytes = static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_packus_epi16(sum, sum)));
    to[x] = static_cast<std::uint8_t>(bytes);
    to[x + plane] = static_cast<std::uint8_t>(bytes >> 8U);
    to[x + 2 * plane] = static_cast<std::uint8_t>(bytes >> 16U);
#else
    for (std::size_t c = 0; c < 3; ++c) {
      std::int32_t sum = 0;
      for (std::size_t k = 0; k < taps; ++k) sum += at[3 * k + c] * weights[k];
      to[x + c * plane] = to_byte(sum);
    }
#endif
  }
}

void across_any(const std::int16_t* row, const AxisFilter& filter, std::size_t channels, std::size_t out,
                std::size_t plane, std::uint8_t* to) {
  const auto taps = static_cast<std::size_t>(filter.taps);
  for (std::size_t x = 0; x < out; ++x) {
    const std::int16_t* at = row + static_cast<std::size_t>(filter.starts[x]) * channels;
    const std::int16_t* weights = filter.weights.data() + x * taps;
    for (std::size_t c = 0; c < channels; ++c) {
      std::int32_t sum = 0;
      for (std::size_t k = 0; k < taps; ++k) sum += at[k * channels + c] * weights[k];
      to[x + c * plane] = to_byte(sum);
    }
  }
}

}  // namespace

void Resampler::run(const RasterView& source, const Region& region, const ImageShape& shape,
                    std::span<std::uint8_t> out) {
  DDP_ASSERT(source.channels == shape.channels && out.size() == shape.bytes());
  DDP_ASSERT(region.width > 0 && region.height > 0);
  make_filter(horizontal_, scratch_, source.width, region.x, region.width, shape.width, region.mirrored, 2);
  make_filter(vertical_, scratch_, source.height, region.y, region.height, shape.height, false, 4);
  const auto channels = static_cast<std::size_t>(source.channels);
  const std::size_t stride = static_cast<std::size_t>(source.width) * channels;
  // Weights beyond the last column are zero, but are multiplied all the same.
  row_.assign(stride + static_cast<std::size_t>(horizontal_.taps) * channels + kRowPadding, 0);
  const auto [leftmost, rightmost] = std::minmax_element(horizontal_.starts.begin(), horizontal_.starts.end());
  const std::size_t begin = static_cast<std::size_t>(*leftmost) * channels;
  const std::size_t end = std::min(stride, static_cast<std::size_t>(*rightmost + horizontal_.taps) * channels);
  const std::size_t plane = static_cast<std::size_t>(shape.height * shape.width);
  for (std::int64_t y = 0; y < shape.height; ++y) {
    const std::int64_t top = vertical_.starts[static_cast<std::size_t>(y)];
    const std::int16_t* weights = vertical_.weights.data() + y * vertical_.taps;
    for (std::int64_t k = 0; k < vertical_.taps; k += 4) {
      const std::uint8_t* rows[4];
      for (std::int64_t i = 0; i < 4; ++i) {
        const std::int64_t row = std::min(top + k + i, source.height - 1);  // beyond the last one the weight is zero
        rows[i] = source.pixels + static_cast<std::size_t>(row) * stride + begin;
      }
      add_rows(rows, weights + k, end - begin, k == 0, row_.data() + begin);
    }
    std::uint8_t* to = out.data() + y * shape.width;
    if (channels == 3) {
      across_three(row_.data(), horizontal_, static_cast<std::size_t>(shape.width), plane, to);
    } else {
      across_any(row_.data(), horizontal_, channels, static_cast<std::size_t>(shape.width), plane, to);
    }
  }
}

}  // namespace ddp
