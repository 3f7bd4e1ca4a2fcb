// Resizes a region of an image with a triangle filter that is widened on downscaling to avoid aliasing. The result
// matches Pillow's Image.crop(region).resize(size, BILINEAR) to within one level of 255.
//
//   Resampler resampler;   // one per thread; reuses its buffers
//   resampler.run({pixels.data(), 640, 480, 3}, {100, 50, 300, 300}, {3, 224, 224}, out);
//
// All arithmetic on pixels is in integers, so the result is the same on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types/shape.h"
#include "data/formats/raster.h"

namespace ddp {

// The inputs of each output along one axis: `taps` inputs from starts[i] on, with weights that add up to 2^14.
struct AxisFilter {
  std::int64_t taps = 0;
  std::vector<std::int32_t> starts;
  std::vector<std::int16_t> weights;  // [outputs][taps]
};

class Resampler {
 public:
  // Writes `region` of `source`, resized, to `out` [shape.channels][shape.height][shape.width]. Pixels outside the
  // region do not contribute.
  void run(const RasterView& source, const Region& region, const Shape& shape, std::span<std::uint8_t> out);

 private:
  AxisFilter horizontal_;
  AxisFilter vertical_;
  std::vector<std::int16_t> row_;
  std::vector<double> scratch_;
};

}  // namespace ddp
