// Compiled if libheif was not found.
#include "data/formats/formats.h"

namespace ddp {

bool heif_is_supported() { return false; }

void decode_heif(std::span<const std::uint8_t> /*file*/, const RasterRequest& /*request*/, Raster& /*raster*/) {
  throw BadImage("is a HEIC file, for which this program was built without libheif");
}

}  // namespace ddp
