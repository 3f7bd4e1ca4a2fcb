// Image decoding, shared by the fuzz programs of picture formats.
#pragma once

#include <array>
#include <vector>

#include "data/images/image_decoder.h"
#include "fuzz.h"

namespace ddp::fuzz {

// Decodes the whole image and parts of it. Only the header of larger images is read, because their pixels would take
// most of the time; tests/unit/data covers them.
inline void decode_image(std::span<const std::uint8_t> file) {
  constexpr std::int64_t kMostPixels = std::int64_t{1} << 20;
  constexpr Shape kShape{3, 32, 24};
  const auto small = [](const ImageSize& size) {
    if (size.width * size.height > kMostPixels) throw BadImage("is too large for this test");
  };
  const std::array<RegionChooser, 3> choosers = {
      [&](const ImageSize& size) {
        small(size);
        return Region{0, 0, static_cast<double>(size.width), static_cast<double>(size.height)};
      },
      [&](const ImageSize& size) {
        small(size);
        return centre_region(size, 0.5);
      },
      [&](const ImageSize& size) {
        small(size);
        const auto width = static_cast<double>(size.width);
        const auto height = static_cast<double>(size.height);
        return Region{0.6 * width, 0.7 * height, 0.4 * width, 0.3 * height, true};
      },
  };
  parses([&] {
    // A new decoder, whose buffers cannot contain data of an earlier file after this one.
    ImageDecoder decoder;
    std::vector<std::uint8_t> pixels(kShape.size());
    try {
      decoder.load(file);
      for (const RegionChooser& choose : choosers) decoder.decode(choose, kShape, pixels);
      decoder.decode({.choose = choosers[0], .pixels = {1, 1}, .whole = true, .verify = true});
    } catch (const BadImage& bad) {
      throw Error(ExitCode::data, bad.what());
    }
  });
}

}  // namespace ddp::fuzz
