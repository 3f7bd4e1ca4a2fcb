#include "data/images/preprocessing.h"

#include <fmt/core.h>

#include <cmath>

namespace ddp {

Region Preprocessing::region(const ImageSize& picture) const {
  if (is_right_size(picture)) return centre_region(picture, 1, picture);
  return centre_region(picture, crop, {shape.width, shape.height});
}

std::string Preprocessing::text(bool varied) const {
  const std::string size = fmt::format("{}x{}", shape.height, shape.width);
  const std::string rule = shape.height == shape.width
                               ? fmt::format("shorter side to {:g}, central {}",
                                             std::round(static_cast<double>(shape.width) / crop), shape.width)
                               : fmt::format("central {:g}% of the largest {} rectangle", 100 * crop, size);
  return fmt::format("{}{}, bilinear{}{}{}{}", varied ? "in evaluation " : "", rule,
                     keeps_right_size ? fmt::format("; those of {} as they are", size) : "",
                     shape.channels == 1 ? "; in grey" : "", exact ? "" : "; large ones shrunk while they are decoded",
                     upright ? "" : "; EXIF orientation ignored");
}

std::string Preprocessing::recipe() const {
  return fmt::format(
      R"({{"color": "{}", "height": {}, "width": {}, "crop": {}, "filter": "bilinear", "antialias": true, )"
      R"("keep_if_size_matches": {}, "exact": {}{}}})",
      shape.channels == 1 ? "L" : "RGB", shape.height, shape.width, crop, keeps_right_size, exact,
      upright ? R"(, "exif_orientation": true)" : "");
}

}  // namespace ddp
