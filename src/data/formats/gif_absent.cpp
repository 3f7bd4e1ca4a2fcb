// Compiled if giflib was not found.
#include "data/formats/formats.h"

namespace ddp {

bool gif_is_supported() { return false; }

void decode_gif(std::span<const std::uint8_t> /*file*/, const RasterRequest& /*request*/, Raster& /*raster*/) {
  throw BadImage("is a GIF file, for which this program was built without giflib");
}

}  // namespace ddp
