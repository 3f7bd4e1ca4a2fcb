// Compiled if libtiff was not found.
#include "data/formats/formats.h"

namespace ddp {

bool tiff_is_supported() { return false; }

void decode_tiff(std::span<const std::uint8_t> /*file*/, const RasterRequest& /*request*/, Raster& /*raster*/) {
  throw BadImage("is a TIFF file, for which this program was built without libtiff");
}

}  // namespace ddp
