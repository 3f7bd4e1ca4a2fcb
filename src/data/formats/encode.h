// Pictures as files in memory: JPEG and PNG, for `ddp_train pack`.
//
//   const std::string file = encode_jpeg({pixels.data(), 640, 480, 3}, /*quality=*/90);
//   content_suffix(file);   // "jpg"
#pragma once

#include <string>
#include <string_view>

#include "data/formats/raster.h"

namespace ddp {

// Baseline JPEG with the defaults of libjpeg: colours at half the resolution. One or three channels; quality 1 to 100.
std::string encode_jpeg(const RasterView& picture, int quality);
// 8 bits a channel, one or three of them.
std::string encode_png(const RasterView& picture);

// The usual suffix of a picture's format, by its first bytes; "" if it is none that is read.
std::string_view content_suffix(std::string_view file);

}  // namespace ddp
