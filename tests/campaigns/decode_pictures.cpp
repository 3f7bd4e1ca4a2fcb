// Decodes the pictures whose names are lines of standard input, and writes a line for each: width, height and the CRC-32 of its RGB
// pixels, or why it is not read. With the argument "off" the EXIF orientation is ignored.
#include <zlib.h>

#include <iostream>
#include <string>

#include "data/images/image_decoder.h"

int main(int count, char** arguments) {
  const bool upright = count < 2 || std::string(arguments[1]) != "off";
  ddp::ImageDecoder decoder;
  for (std::string name; std::getline(std::cin, name);) {
    try {
      decoder.load(std::filesystem::path(name), upright);
      const ddp::RegionChooser all = [](const ddp::ImageSize& size) { return ddp::centre_region(size, 1, size); };
      const ddp::Raster& raster = decoder.decode({.choose = all, .pixels = {1, 1}, .whole = true, .verify = true});
      const auto bytes = static_cast<uInt>(raster.width * raster.height * 3);
      std::cout << raster.width << ' ' << raster.height << ' ' << crc32(0, raster.pixels.data(), bytes) << std::endl;
    } catch (const ddp::BadImage& reason) {
      std::cout << "refused: " << reason.what() << std::endl;
    }
  }
  return 0;
}
