#include "data/images/preprocessing.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace ddp {

Region Preprocessing::region(const ImageSize& picture) const {
  if (is_right_size(picture) || resize == PictureResize::pad) return centre_region(picture, 1, picture);
  if (resize == PictureResize::squash) return centre_region(picture, crop, picture);
  return centre_region(picture, crop, {shape.width, shape.height});
}

PicturePlace Preprocessing::placement(const ImageSize& picture) const {
  PicturePlace place{0, 0, shape.width, shape.height};
  if (resize != PictureResize::pad) return place;
  const auto width = static_cast<double>(picture.width);
  const auto height = static_cast<double>(picture.height);
  const double shown = static_cast<double>(shape.width) / static_cast<double>(shape.height);
  // Rounded half to even, as by Python.
  if (width / height > shown) {
    place.height =
        std::max<std::int64_t>(1, std::llrint(std::nearbyint(height / width * static_cast<double>(shape.width))));
    place.y = std::llrint(std::nearbyint(static_cast<double>(shape.height - place.height) * 0.5));
  } else if (width / height < shown) {
    place.width =
        std::max<std::int64_t>(1, std::llrint(std::nearbyint(width / height * static_cast<double>(shape.height))));
    place.x = std::llrint(std::nearbyint(static_cast<double>(shape.width - place.width) * 0.5));
  }
  return place;
}

namespace {

const char* filter_name(Interpolation filter) { return filter == Interpolation::bilinear ? "bilinear" : "bicubic"; }

}  // namespace

std::string Preprocessing::text(bool varied) const {
  const std::string size = fmt::format("{}x{}", shape.height, shape.width);
  const auto enlarged = [&](std::int64_t side) { return std::round(static_cast<double>(side) / crop); };
  std::string rule;
  if (resize == PictureResize::pad) {
    rule = fmt::format("all of each in {} between black borders", size);
  } else if (resize == PictureResize::squash) {
    rule = crop == 1
               ? fmt::format("squashed to {}", size)
               : fmt::format("squashed to {:g}x{:g}, central {}", enlarged(shape.height), enlarged(shape.width), size);
  } else if (shape.height == shape.width) {
    rule = fmt::format("shorter side to {:g}, central {}", enlarged(shape.width), shape.width);
  } else {
    rule = fmt::format("central {:g}% of the largest {} rectangle", 100 * crop, size);
  }
  return fmt::format("{}{}, {}{}{}{}{}", varied ? "in evaluation " : "", rule, filter_name(filter),
                     keeps_right_size ? fmt::format("; those of {} as they are", size) : "",
                     shape.channels == 1 ? "; in grey" : "", exact ? "" : "; large ones shrunk while they are decoded",
                     upright ? "" : "; EXIF orientation ignored");
}

std::string Preprocessing::recipe() const {
  const char* const resized = resize == PictureResize::crop     ? ""
                              : resize == PictureResize::squash ? R"("resize": "squash", )"
                                                                : R"("resize": "pad", )";
  return fmt::format(R"({{"color": "{}", "height": {}, "width": {}, "crop": {}, {}"filter": "{}", "antialias": true, )"
                     R"("keep_if_size_matches": {}, "exact": {}{}}})",
                     shape.channels == 1 ? "L" : "RGB", shape.height, shape.width, crop, resized, filter_name(filter),
                     keeps_right_size, exact, upright ? R"(, "exif_orientation": true)" : "");
}

}  // namespace ddp
