#include "data/images/resizer.h"

#include <algorithm>

#include "base/error.h"

namespace ddp {

void PictureResizer::run(const RasterView& source, const Region& region, const ResizeRule& rule, const Shape& shape,
                         std::span<std::uint8_t> out) {
  if (rule.filter == Interpolation::bilinear && !rule.exactly) return fast_.run(source, region, shape, out);
  Region plain = region;
  plain.mirrored = false;
  exact_.run(source, plain, shape, out, rule.filter);
  if (!region.mirrored) return;
  const auto width = static_cast<std::ptrdiff_t>(shape.width);
  for (auto row = out.begin(); row != out.end(); row += width) std::reverse(row, row + width);
}

void PictureResizer::run_placed(const RasterView& source, const Region& region, const ResizeRule& rule,
                                const PicturePlace& place, const Shape& shape, std::span<std::uint8_t> out) {
  if (place.width == shape.width && place.height == shape.height) return run(source, region, rule, shape, out);
  DDP_ASSERT(place.x >= 0 && place.y >= 0 && place.x + place.width <= shape.width &&
             place.y + place.height <= shape.height);
  const Shape inner{shape.channels, place.height, place.width};
  part_.resize(inner.size());
  run(source, region, rule, inner, part_);
  std::fill(out.begin(), out.end(), std::uint8_t{0});
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    for (std::int64_t y = 0; y < place.height; ++y) {
      std::copy_n(part_.data() + (c * place.height + y) * place.width, place.width,
                  out.data() + (c * shape.height + place.y + y) * shape.width + place.x);
    }
  }
}

}  // namespace ddp
