// Resizes a region of an image to the bytes of Pillow's Image.resize(size, filter, box=region): for evaluation, which other
// programs must be able to repeat. Slower than resample.h.
//
//   ExactResampler resampler;   // one per thread; reuses its buffers
//   resampler.run({pixels.data(), 640, 480, 3}, {100, 50, 300, 300}, {3, 224, 224}, out);
//
// Unlike in resample.h, pixels beside the region contribute where the filter reaches them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types/pictures.h"
#include "base/types/shape.h"
#include "data/formats/region.h"
#include "data/images/resample.h"

namespace ddp {

// The inputs of each output along one axis: `taps` inputs from starts[i] on, with weights that add up to about 2^22.
struct ExactFilter {
  std::int64_t taps = 0;
  std::vector<std::int32_t> starts;
  std::vector<std::int32_t> counts;   // of weights that may not be zero
  std::vector<std::int32_t> weights;  // [outputs][taps]
};

class ExactResampler {
 public:
  // Writes `region` of `source`, resized and not mirrored, to `out` [shape.channels][shape.height][shape.width].
  void run(const RasterView& source, const Region& region, const Shape& shape, std::span<std::uint8_t> out,
           Interpolation filter = Interpolation::bilinear);

 private:
  ExactFilter horizontal_;
  ExactFilter vertical_;
  std::vector<double> scratch_;
  std::vector<std::uint8_t> rows_;  // resized horizontally: [rows][channels][width]
  std::vector<std::int32_t> sums_;
};

}  // namespace ddp
