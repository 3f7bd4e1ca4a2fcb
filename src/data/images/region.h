// A part of an image, and how to choose one when the image's size is known.
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

// A rectangle in pixels, which need not begin or end at a whole one; y points down.
struct Region {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
  bool mirrored = false;  // left and right change places after cutting
};

// Must be a pure function of the size; a region lies within its image.
using RegionChooser = std::function<Region(const ImageSize&)>;

// The square in the middle whose side is `share` of the shorter side: what is left where the shorter side is resized to
// s and a square of share * s is cut from the middle.
inline Region centre_region(const ImageSize& size, double share) {
  const double side = share * static_cast<double>(size.width < size.height ? size.width : size.height);
  return {(static_cast<double>(size.width) - side) / 2, (static_cast<double>(size.height) - side) / 2, side, side};
}

}  // namespace ddp
