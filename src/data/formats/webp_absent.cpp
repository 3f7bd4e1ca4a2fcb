// Compiled if libwebp was not found.
#include "data/formats/formats.h"

namespace ddp {

bool webp_is_supported() { return false; }

void decode_webp(std::span<const std::uint8_t> /*file*/, const RasterRequest& /*request*/, Raster& /*raster*/) {
  throw BadImage("is a WebP file, for which this program was built without libwebp");
}

}  // namespace ddp
