// Resizing with AVX2, sixteen rows of the result at a time. In the vertical pass a vector holds sixteen neighbours of a
// row; the sums are transposed, so that in the horizontal pass a vector holds one column of sixteen rows, and
// transposed back as bytes.
#include "data/images/resample_kernels.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <tuple>
#include <utility>

namespace ddp {

#ifdef __AVX2__
namespace {

constexpr std::int64_t kRows = 16;
constexpr std::size_t kLanes = 16;

using Block = std::array<__m256i, kLanes>;

const __m128i* as_128(const void* at) { return static_cast<const __m128i*>(at); }
__m128i* as_128(void* at) { return static_cast<__m128i*>(at); }
const __m256i* as_256(const void* at) { return static_cast<const __m256i*>(at); }
__m256i* as_256(void* at) { return static_cast<__m256i*>(at); }

// Transposes sixteen vectors of sixteen 16-bit numbers.
inline void transpose(Block& b) {
  Block t;
  for (std::size_t i = 0; i < kLanes; i += 2) {
    t[i] = _mm256_unpacklo_epi16(b[i], b[i + 1]);
    t[i + 1] = _mm256_unpackhi_epi16(b[i], b[i + 1]);
  }
  for (std::size_t i = 0; i < kLanes; i += 4) {
    b[i] = _mm256_unpacklo_epi32(t[i], t[i + 2]);
    b[i + 1] = _mm256_unpackhi_epi32(t[i], t[i + 2]);
    b[i + 2] = _mm256_unpacklo_epi32(t[i + 1], t[i + 3]);
    b[i + 3] = _mm256_unpackhi_epi32(t[i + 1], t[i + 3]);
  }
  for (std::size_t i = 0; i < kLanes; i += 8) {
    for (std::size_t k = 0; k < 4; ++k) {
      t[i + 2 * k] = _mm256_unpacklo_epi64(b[i + k], b[i + k + 4]);
      t[i + 2 * k + 1] = _mm256_unpackhi_epi64(b[i + k], b[i + k + 4]);
    }
  }
  for (std::size_t k = 0; k < 8; ++k) {
    b[k] = _mm256_permute2x128_si256(t[k], t[k + 8], 0x20);
    b[k + 8] = _mm256_permute2x128_si256(t[k], t[k + 8], 0x31);
  }
}

// Transposes sixteen vectors of sixteen bytes.
inline void transpose(std::array<__m128i, kLanes>& b) {
  std::array<__m128i, kLanes> t;
  // Four rounds; each interleaves vectors that are half the total apart.
  for (int round = 0; round < 4; ++round) {
    for (std::size_t i = 0; i < kLanes / 2; ++i) {
      t[2 * i] = _mm_unpacklo_epi8(b[i], b[i + kLanes / 2]);
      t[2 * i + 1] = _mm_unpackhi_epi8(b[i], b[i + kLanes / 2]);
    }
    b = t;
  }
}

// The inputs of sixteen rows of the result, and their weights. kTaps 0: any number of them.
template <std::size_t kTaps>
struct RowInputs {
  static constexpr std::size_t kHeld = kTaps == 0 ? 1 : kTaps;
  std::array<std::array<const std::uint8_t*, kHeld>, kLanes> from;
  std::array<std::array<std::int16_t, kHeld>, kLanes> weights;
};

// The vertical sums of sixteen rows of the result, transposed: tile[element][row].
template <std::size_t kTaps>
void down(const ResampleTask& task, std::int64_t first_row, std::size_t begin, std::size_t end, std::int16_t* tile) {
  const std::size_t stride = static_cast<std::size_t>(task.source.width * task.source.channels);
  const auto taps = static_cast<std::size_t>(task.vertical.taps);
  const auto input = [&](std::size_t row, std::size_t k) {
    const auto y = static_cast<std::size_t>(std::min(first_row + static_cast<std::int64_t>(row), task.height - 1));
    // Beyond the last row the weight is zero.
    const std::int64_t from = std::min(task.vertical.starts[y] + static_cast<std::int64_t>(k), task.source.height - 1);
    return std::pair(task.source.pixels + static_cast<std::size_t>(from) * stride, task.vertical.weights[y * taps + k]);
  };
  RowInputs<kTaps> inputs;
  if constexpr (kTaps > 0) {
    for (std::size_t row = 0; row < kLanes; ++row) {
      for (std::size_t k = 0; k < kTaps; ++k) std::tie(inputs.from[row][k], inputs.weights[row][k]) = input(row, k);
    }
  }
  const auto add = [](__m256i sum, const std::uint8_t* at, std::int16_t weight) {
    const __m256i wide = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(as_128(at))), 7);
    return _mm256_add_epi16(sum, _mm256_mulhrs_epi16(wide, _mm256_set1_epi16(weight)));
  };
  const auto block_at = [&](std::size_t at) {
    Block sums;
    for (std::size_t row = 0; row < kLanes; ++row) {
      __m256i sum = _mm256_setzero_si256();
      if constexpr (kTaps > 0) {
        for (std::size_t k = 0; k < kTaps; ++k) sum = add(sum, inputs.from[row][k] + at, inputs.weights[row][k]);
      } else {
        for (std::size_t k = 0; k < taps; ++k) {
          const auto [from, weight] = input(row, k);
          sum = add(sum, from + at, weight);
        }
      }
      sums[row] = sum;
    }
    transpose(sums);
    for (std::size_t i = 0; i < kLanes; ++i) {
      _mm256_storeu_si256(as_256(tile + (at - begin + i) * kLanes), sums[i]);
    }
  };
  std::size_t at = begin;
  for (; at + kLanes <= end; at += kLanes) block_at(at);
  // The block at the right edge overlaps the previous one, so that nothing beyond the last row is read.
  if (at < end) block_at(end - kLanes);
}

void down_any(const ResampleTask& task, std::int64_t row, std::size_t begin, std::size_t end, std::int16_t* tile) {
  switch (task.vertical.taps) {
    case 2:
      return down<2>(task, row, begin, end, tile);
    case 3:
      return down<3>(task, row, begin, end, tile);
    case 4:
      return down<4>(task, row, begin, end, tile);
    default:
      return down<0>(task, row, begin, end, tile);
  }
}

// The horizontal sums of sixteen rows, to bytes[channel][column][row].
template <std::size_t kChannels>
void along(const ResampleTask& task, const std::int16_t* tile, std::int64_t leftmost, std::uint8_t* bytes,
           std::size_t padded) {
  const auto taps = static_cast<std::size_t>(task.horizontal.taps);
  const __m256i half = _mm256_set1_epi16(16);
  for (std::size_t x = 0; x < static_cast<std::size_t>(task.width); ++x) {
    const std::int16_t* at = tile + static_cast<std::size_t>(task.horizontal.starts[x] - leftmost) * kChannels * kLanes;
    const std::int16_t* weights = task.horizontal.weights.data() + x * taps;
    std::array<__m256i, kChannels> sums;
    sums.fill(half);
    for (std::size_t k = 0; k < taps; ++k, at += kChannels * kLanes) {
      const __m256i weight = _mm256_set1_epi16(weights[k]);
      for (std::size_t c = 0; c < kChannels; ++c) {
        const __m256i values = _mm256_loadu_si256(as_256(at + c * kLanes));
        sums[c] = _mm256_add_epi16(sums[c], _mm256_mulhrs_epi16(values, weight));
      }
    }
    for (std::size_t c = 0; c < kChannels; ++c) {
      const __m256i levels = _mm256_srai_epi16(sums[c], 5);
      const __m128i packed = _mm_packus_epi16(_mm256_castsi256_si128(levels), _mm256_extracti128_si256(levels, 1));
      _mm_storeu_si128(as_128(bytes + (c * padded + x) * kLanes), packed);
    }
  }
}

// Transposes bytes[column][row] of a channel to rows of the result.
void put_rows(const ResampleTask& task, std::int64_t channel, std::int64_t first_row, const std::uint8_t* bytes) {
  const std::int64_t rows = std::min(kRows, task.height - first_row);
  for (std::int64_t x = 0; x < task.width; x += static_cast<std::int64_t>(kLanes)) {
    std::array<__m128i, kLanes> block;
    for (std::size_t i = 0; i < kLanes; ++i) {
      block[i] = _mm_loadu_si128(as_128(bytes + (static_cast<std::size_t>(x) + i) * kLanes));
    }
    transpose(block);
    const std::int64_t count = std::min<std::int64_t>(kLanes, task.width - x);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::uint8_t* to = task.out + (channel * task.height + first_row + row) * task.width + x;
      if (count == static_cast<std::int64_t>(kLanes)) {
        _mm_storeu_si128(as_128(to), block[static_cast<std::size_t>(row)]);
      } else {
        std::memcpy(to, &block[static_cast<std::size_t>(row)], static_cast<std::size_t>(count));
      }
    }
  }
}

void resample(const ResampleTask& task) {
  const auto channels = static_cast<std::size_t>(task.source.channels);
  const std::size_t stride = static_cast<std::size_t>(task.source.width) * channels;
  if (stride < kLanes || (channels != 1 && channels != 3)) {
    resample_portable(task);
    return;
  }
  const auto [first, last] = std::minmax_element(task.horizontal.starts.begin(), task.horizontal.starts.end());
  const std::int64_t leftmost = *first;
  const std::size_t needed = static_cast<std::size_t>(*last + task.horizontal.taps - leftmost) * channels;
  std::size_t begin = static_cast<std::size_t>(leftmost) * channels;
  const std::size_t end = std::min(stride, begin + std::max(needed, kLanes));
  begin = std::min(begin, end - kLanes);
  const std::size_t skipped = static_cast<std::size_t>(leftmost) * channels - begin;
  const std::size_t padded = (static_cast<std::size_t>(task.width) + kLanes - 1) / kLanes * kLanes;
  const std::size_t tile_size = (skipped + std::max(needed, end - begin)) * kLanes;
  const std::size_t bytes_size = padded * channels * kLanes / sizeof(std::int16_t);
  if (task.scratch.size() < tile_size + bytes_size) task.scratch.resize(tile_size + bytes_size);
  std::int16_t* tile = task.scratch.data();
  // Columns beyond the last have weight zero, so the value does not matter.
  auto* bytes = static_cast<std::uint8_t*>(static_cast<void*>(tile + tile_size));
  for (std::int64_t row = 0; row < task.height; row += kRows) {
    down_any(task, row, begin, end, tile);
    const std::int16_t* from = tile + skipped * kLanes;
    if (channels == 3) {
      along<3>(task, from, leftmost, bytes, padded);
    } else {
      along<1>(task, from, leftmost, bytes, padded);
    }
    for (std::size_t c = 0; c < channels; ++c) {
      put_rows(task, static_cast<std::int64_t>(c), row, bytes + c * padded * kLanes);
    }
  }
}

}  // namespace

ResampleKernel resample_avx2() { return &resample; }

#else
ResampleKernel resample_avx2() { return nullptr; }
#endif

}  // namespace ddp
