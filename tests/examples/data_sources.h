// Names that the examples in the headers of data/sources use.
#pragma once

#include <cstdint>
#include <vector>

namespace ddp::data_sources_examples {

extern std::vector<std::uint8_t> pixels;
extern std::vector<std::uint8_t> labels;

}  // namespace ddp::data_sources_examples
