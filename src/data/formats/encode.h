// Pictures as files in memory: JPEG and PNG, for `ddp_train pack`.
//
//   const std::string file = encode_jpeg({pixels.data(), 640, 480, 3}, /*quality=*/90);
#pragma once

#include <string>

#include "data/formats/raster.h"

namespace ddp {

// Baseline JPEG with the defaults of libjpeg: colours at half the resolution. One or three channels; quality 1 to 100.
std::string encode_jpeg(const RasterView& picture, int quality);
// 8 bits a channel, one or three of them.
std::string encode_png(const RasterView& picture);

}  // namespace ddp
