// TIFF files.
#include "image.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ddp::fuzz::decode_image({data, size});
  return 0;
}
