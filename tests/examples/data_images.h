// Names that the examples in the headers of data/images use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/formats/raster.h"
#include "data/sources/dataset.h"

namespace ddp::data_images_examples {

extern const Dataset& data;
extern const RegionChooser chooser, choose;
extern const Shape shape;
extern const std::vector<std::string> files;
extern const std::span<std::uint8_t> pixels, out;
extern const Raster raster;

}  // namespace ddp::data_images_examples
