// Resizes a region of a picture by either filter: fast, as training reads, or to the bytes of Pillow.
//
//   PictureResizer resizer;   // one per thread; reuses its buffers
//   resizer.run(raster.view(), raster.region, {Interpolation::bicubic, /*exactly=*/true}, {3, 224, 224}, out);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types/pictures.h"
#include "base/types/shape.h"
#include "data/images/preprocessing.h"
#include "data/images/resample.h"
#include "data/images/resample_exact.h"

namespace ddp {

struct ResizeRule {
  Interpolation filter = Interpolation::bilinear;
  bool exactly = false;
};

class PictureResizer {
 public:
  // To all of `out` [shape.channels][shape.height][shape.width]. The bicubic filter has one form only, the exact one.
  void run(const RasterView& source, const Region& region, const ResizeRule& rule, const Shape& shape,
           std::span<std::uint8_t> out);
  // To a part of `out`; the rest is black.
  void run_placed(const RasterView& source, const Region& region, const ResizeRule& rule, const PicturePlace& place,
                  const Shape& shape, std::span<std::uint8_t> out);

 private:
  Resampler fast_;
  ExactResampler exact_;
  std::vector<std::uint8_t> part_;
};

}  // namespace ddp
