// Compiled if libavif was not found.
#include "data/formats/formats.h"

namespace ddp {

bool avif_is_supported() { return false; }

void decode_avif(std::span<const std::uint8_t> /*file*/, const RasterRequest& /*request*/, Raster& /*raster*/) {
  throw BadImage("is an AVIF file, for which this program was built without libavif");
}

}  // namespace ddp
