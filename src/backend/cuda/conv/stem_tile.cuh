// Shared by the kernels of stem_conv.h: lines of images in shared memory. See Note [Units of lines].
//
//   zero_tile(memory, units); find_places(image, pixels, places); __syncthreads();
//   copy_lines(image, x, sample, first_line, tile);
//   finish_lines(image, tile);
//   two_values = get_word(start_of(tile) + places[pixel] + image.place(unit) + 4 * pair);
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/code/async_copy.cuh"
#include "backend/cuda/code/conv_tile.cuh"
#include "backend/cuda/code/vector.cuh"
#include "backend/cuda/code/warp_matrix.cuh"
#include "backend/op.h"

namespace ddp::cuda {

// The shared memory of a block, with the places of its pixels just below the 48 KiB of static shared memory.
inline constexpr unsigned kStemUnits = 2880;
inline constexpr unsigned kStemPixels = 1024;
inline constexpr unsigned kMostDepth = 128;  // units
inline constexpr unsigned kValuesOfUnit = 8;
inline constexpr unsigned kWordsOfUnit = 4;  // pairs of values
inline constexpr unsigned kWordBytes = sizeof(std::uint32_t);

// The convolution, divided into bands of lines of the result.
struct StemImage {
  std::uint32_t samples, image_height, line_values;  // of the images
  std::uint32_t channels, window_height, window_width;
  std::uint32_t height, width, outputs;  // of the result
  std::uint32_t stride;
  std::int32_t pad_top;
  std::uint32_t zeros;          // zero weights in front of each line of the window: 0 or 1
  std::uint32_t units_of_line;  // of the window
  std::uint32_t lead;           // where a line of the image begins in shared memory
  std::uint32_t first;          // ... and what the first pixel reads
  std::uint32_t pitch;          // from line to line, in values
  std::uint32_t copies;
  Divisor by_units, by_channels;           // of a line of the window, of the images
  std::uint32_t bands, lines, tile_lines;  // a band has `lines` of the result and reads `tile_lines`

  __host__ __device__ std::uint32_t units() const { return window_height * units_of_line; }
  __host__ __device__ std::uint32_t pixels() const { return lines * width; }
  __host__ __device__ std::uint32_t all_bands() const { return samples * bands; }
  __host__ __device__ std::uint32_t copy_words() const { return tile_lines * pitch / 2; }
  // The place of the second copy: 16 banks away from the first one, whose neighbouring pixels use the others.
  __host__ __device__ std::uint32_t second_copy() const { return (copy_words() + 31) / 32 * 32 + 16; }
  __host__ __device__ std::uint32_t tile_units() const {
    return (copies == 1 ? copy_words() : second_copy() + copy_words()) / kWordsOfUnit;
  }
  // In bytes, from a pixel's place; units beyond the last one are anywhere.
  __host__ __device__ std::uint32_t place(std::uint32_t unit) const {
    const std::uint32_t line = by_units.quotient(unit);
    const std::uint32_t words = line * pitch / 2 + by_units.remainder(unit, line) * kWordsOfUnit;
    return unit < units() ? words * kWordBytes : 0;
  }
};

// Which weight a value of a unit meets.
class StemWeights {
 public:
  struct Place {
    std::uint32_t index;  // among the weights of an output, in PyTorch's layout
    bool exists;          // otherwise it meets a zero
  };

  __device__ explicit StemWeights(const StemImage& s) : units_of_line_(s.units_of_line), channels_(s.channels) {}
  __device__ static std::uint32_t of_output(const StemImage& s) {
    return s.channels * s.window_height * s.window_width;
  }
  __device__ Place place(const StemImage& s, std::uint32_t unit, std::uint32_t value_of_unit) const {
    const std::uint32_t line = units_of_line_.quotient(unit);
    // Below zero in front of the line, as a large number.
    const std::uint32_t value = units_of_line_.remainder(unit, line) * kValuesOfUnit + value_of_unit - s.zeros;
    const std::uint32_t column = channels_.quotient(value);
    const std::uint32_t channel = channels_.remainder(value, column);
    return {channel * s.window_height * s.window_width + line * s.window_width + column,
            line < s.window_height && value < s.window_width * s.channels};
  }

 private:
  Divisor units_of_line_, channels_;
};

inline void set_lines(StemImage& s, std::uint32_t lines) {
  s.lines = lines;
  s.tile_lines = (lines - 1) * s.stride + s.window_height;
}

// Without bands.
inline StemImage image_of(const ConvSpec& spec) {
  const Shape out = spec.convolved();
  const auto u = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  StemImage s{};
  s.samples = u(spec.batch);
  s.image_height = u(spec.input.height);
  s.line_values = u(spec.input.width * spec.input.channels);
  s.channels = u(spec.input.channels);
  s.window_height = u(spec.window.height);
  s.window_width = u(spec.window.width);
  s.height = u(out.height);
  s.width = u(out.width);
  s.outputs = u(out.channels);
  s.stride = u(spec.window.stride.vertical);
  s.pad_top = static_cast<std::int32_t>(spec.window.padding.top);
  const std::uint32_t step = s.stride * s.channels;
  const std::uint32_t padding = u(spec.window.padding.left) * s.channels;
  s.copies = step % 2 == 0 ? 1 : 2;
  s.zeros = step % 2 == 0 ? padding % 2 : 0;
  s.units_of_line = (s.zeros + s.window_width * s.channels + kValuesOfUnit - 1) / kValuesOfUnit;
  s.by_units = Divisor(s.units_of_line);
  s.by_channels = Divisor(s.channels);
  s.lead = (padding + s.zeros + kValuesOfUnit - 1) / kValuesOfUnit * kValuesOfUnit;
  s.first = s.lead - padding - s.zeros;
  const std::uint32_t read = s.first + (s.width - 1) * step + s.units_of_line * kValuesOfUnit;
  const std::uint32_t end = s.lead + s.line_values > read ? s.lead + s.line_values : read;
  s.pitch = (end + kValuesOfUnit - 1) / kValuesOfUnit * kValuesOfUnit;
  set_lines(s, 1);
  return s;
}

// Bands of at most `pixels` that need at most `units` by `size(image)`; no bands if one line is too large.
template <class Size>
void divide_into_bands(StemImage& s, std::uint32_t pixels, std::uint32_t units, Size size) {
  std::uint32_t most = 0;
  for (std::uint32_t lines = 1; lines <= s.height; ++lines) {
    set_lines(s, lines);
    if (s.pixels() > kStemPixels || (lines > 1 && s.pixels() > pixels) || size(s) > units) break;
    most = lines;
  }
  s.bands = most == 0 ? 0 : (s.height + most - 1) / most;
  set_lines(s, most == 0 ? 1 : (s.height + s.bands - 1) / s.bands);
}

// A band of a sample, and how many of its pixels exist.
struct StemBand {
  std::uint32_t sample, line, pixels;

  __device__ StemBand(const StemImage& s, std::uint32_t index) : sample(index / s.bands) {
    line = index % s.bands * s.lines;
    const std::uint32_t left = line < s.height ? s.height - line : 0;
    pixels = (left < s.lines ? left : s.lines) * s.width;
  }
  __device__ std::int32_t first_line(const StemImage& s) const {
    return static_cast<std::int32_t>(line * s.stride) - s.pad_top;
  }
  __device__ std::size_t first_pixel(const StemImage& s) const {
    return (static_cast<std::size_t>(sample) * s.height + line) * s.width;
  }
};

__device__ inline const std::byte* start_of(const Unit* tile) { return reinterpret_cast<const std::byte*>(tile); }
__device__ inline std::uint32_t get_word(const std::byte* place) {
  return *reinterpret_cast<const std::uint32_t*>(place);
}

// The places, in bytes, of what the first `pixels` of a band read; of pixels beyond the band anywhere.
__device__ inline void find_places(const StemImage& s, std::uint32_t pixels, std::uint16_t* places) {
  for (std::uint32_t i = threadIdx.x; i < pixels; i += blockDim.x) {
    const std::uint32_t value = i / s.width * s.stride * s.pitch + s.first + i % s.width * s.stride * s.channels;
    const std::uint32_t word = value / 2 + (value % 2 == 0 ? 0 : s.second_copy());
    places[i] = static_cast<std::uint16_t>(i < s.pixels() ? word * kWordBytes : 0);
  }
}

// Zeros, or a copy that is complete after wait_for_copies().
template <unsigned kWidth>
__device__ inline void copy_values(__nv_bfloat16* shared, const __nv_bfloat16* global, bool exists) {
  if (!exists) {
    Pack<__nv_bfloat16, kWidth> zeros;
    for (unsigned j = 0; j < kWidth; ++j) put(zeros.values, j, 0.0F);
    *reinterpret_cast<Pack<__nv_bfloat16, kWidth>*>(shared) = zeros;
  } else if constexpr (kWidth == 1) {
    *shared = *global;
  } else {
    copy_async<kWidth * sizeof(__nv_bfloat16)>(shared, global);
  }
}

template <unsigned kWidth>
__device__ inline void copy_lines_by(const StemImage& s, const __nv_bfloat16* x, std::uint32_t sample,
                                     std::int32_t first_line, __nv_bfloat16* tile) {
  for (std::uint32_t line = threadIdx.x / 32; line < s.tile_lines; line += blockDim.x / 32) {
    const std::int32_t from = first_line + static_cast<std::int32_t>(line);
    const bool exists = from >= 0 && from < static_cast<std::int32_t>(s.image_height);
    const std::size_t row = static_cast<std::size_t>(sample) * s.image_height + (exists ? from : 0);
    const __nv_bfloat16* source = x + row * s.line_values;
    __nv_bfloat16* target = tile + line * s.pitch + s.lead;
    for (std::uint32_t i = threadIdx.x % 32 * kWidth; i < s.line_values; i += 32 * kWidth) {
      copy_values<kWidth>(target + i, source + i, exists);
    }
  }
}

// Starts to copy the lines of a band, from `first_line` of the image on; those outside it are zero. What surrounds them in
// `tile` is not written. All threads call it, after all have read what was there.
__device__ inline void copy_lines(const StemImage& s, const __nv_bfloat16* x, std::uint32_t sample,
                                  std::int32_t first_line, Unit* tile) {
  auto* values = reinterpret_cast<__nv_bfloat16*>(tile);
  if (s.line_values % 8 == 0) {
    copy_lines_by<8>(s, x, sample, first_line, values);
  } else if (s.line_values % 4 == 0) {
    copy_lines_by<4>(s, x, sample, first_line, values);
  } else if (s.line_values % 2 == 0) {
    copy_lines_by<2>(s, x, sample, first_line, values);
  } else {
    copy_lines_by<1>(s, x, sample, first_line, values);
  }
}

// Completes all copies of the block, with the second copy if there is one. All threads call it, and may then read them.
__device__ inline void finish_lines(const StemImage& s, Unit* tile) {
  wait_for_copies();
  __syncthreads();
  if (s.copies == 1) return;
  auto* words = reinterpret_cast<std::uint32_t*>(tile);
  for (std::uint32_t i = threadIdx.x; i < s.copy_words(); i += blockDim.x) {
    words[s.second_copy() + i] = words[i] >> 16U | words[i + 1] << 16U;
  }
  __syncthreads();
}

}  // namespace ddp::cuda
