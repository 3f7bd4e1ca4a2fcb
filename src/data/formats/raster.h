// Pixels of a picture, or of a part of one, in rows.
//
//   Raster raster;
//   decode_picture(bytes, {.choose = chooser, .pixels = {224, 224}}, raster);
//   const RasterView view = raster.view();   // to be resized
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/formats/region.h"

namespace ddp {

// Rows of pixels with interleaved channels.
struct RasterView {
  const std::uint8_t* pixels = nullptr;  // [height][width][channels]
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::int64_t channels = 0;
};

// Writes planes [channels][n] as pixels [n][channels].
inline void interleave(std::span<const std::uint8_t> planes, std::size_t channels, std::span<std::uint8_t> pixels) {
  const std::size_t plane = planes.size() / channels;
  for (std::size_t i = 0; i < plane; ++i) {
    for (std::size_t c = 0; c < channels; ++c) pixels[i * channels + c] = planes[c * plane + i];
  }
}

// RGB pixels of a part of an image, which may have been scaled down.
struct Raster {
  std::vector<std::uint8_t> pixels;  // [height][width][3]; may be larger
  std::int64_t width = 0;
  std::int64_t height = 0;
  Region region;  // the requested region, in this raster's pixels

  RasterView view() const { return {pixels.data(), width, height, 3}; }
};

}  // namespace ddp
