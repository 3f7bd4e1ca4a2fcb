// A part of an image, and a function that chooses it once the image size is known.
//
//   const RegionChooser centre = [](const ImageSize& size) { return centre_region(size, 0.875); };
//   data.read_region(17, centre, pixels);   // that part, resized to the data set's shape
#pragma once

#include <cstdint>
#include <functional>

namespace ddp {

// In pixels.
struct ImageSize {
  std::int64_t width = 0;
  std::int64_t height = 0;

  bool operator==(const ImageSize&) const = default;
};

// A rectangle in pixels with fractional coordinates; y points down.
struct Region {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
  bool mirrored = false;  // flipped horizontally after cropping
};

// Must be a pure function of the size; a region lies within its image.
using RegionChooser = std::function<Region(const ImageSize&)>;

// The central rectangle with the aspect ratio of `shown`, of which the longer side relative to the image is `share` of
// it. For a square this is equivalent to resizing the shorter side to s and centre-cropping a square of side share * s.
inline Region centre_region(const ImageSize& size, double share, const ImageSize& shown = {1, 1}) {
  const double across = static_cast<double>(size.width) / static_cast<double>(shown.width);
  const double down = static_cast<double>(size.height) / static_cast<double>(shown.height);
  const double scale = share * (across < down ? across : down);
  const double width = scale * static_cast<double>(shown.width);
  const double height = scale * static_cast<double>(shown.height);
  return {(static_cast<double>(size.width) - width) / 2, (static_cast<double>(size.height) - height) / 2, width,
          height};
}

}  // namespace ddp
