// The EXIF orientation of a file: how its rows and columns must be turned for people to see the picture upright.
//
//   const Orientation orientation = orientation_of(bytes);        // of JPEG, PNG and WebP
//   if (orientation.turns()) turn(raster, orientation, scratch);   // as by Pillow's exif_transpose()
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/formats/raster.h"

namespace ddp {

// What is done to the stored pixels, in this order.
struct Orientation {
  bool flips_x = false;
  bool flips_y = false;
  bool swaps = false;  // rows and columns

  bool turns() const { return flips_x || flips_y || swaps; }
};

// The values are 1 to 8, as in EXIF and TIFF; others mean 1, upright.
Orientation orientation_of_value(unsigned value);
// What the first EXIF data of a file say, in JPEG's APP1, PNG's eXIf or WebP's EXIF. Upright if there are none, or they are damaged.
Orientation orientation_of(std::span<const std::uint8_t> file);

// The size of a picture after it is turned.
ImageSize turned_size(const ImageSize& stored, const Orientation& orientation);
// A region of the turned picture, in the stored pixels of a picture of this size. It stays mirrored or not.
Region stored_region(Region region, const ImageSize& stored, const Orientation& orientation);
// Turns pixels and region.
void turn(Raster& raster, const Orientation& orientation, std::vector<std::uint8_t>& scratch);

}  // namespace ddp
