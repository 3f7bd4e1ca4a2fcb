// Names that the examples in the headers of data/formats use.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/formats/raster.h"
#include "data/sources/dataset.h"

namespace ddp::data_formats_examples {

extern const Dataset& data;
extern const RegionChooser chooser;
extern const std::span<const std::uint8_t> bytes;
extern std::vector<std::uint8_t> scratch;
extern Raster raster;
extern const std::span<std::uint8_t> pixels;

}  // namespace ddp::data_formats_examples
