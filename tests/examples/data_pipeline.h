// Names that the examples in the headers of data/pipeline use.
#pragma once

#include <cstdint>
#include <span>

#include "data/pipeline/augmentation.h"
#include "data/pipeline/sampler.h"
#include "data/sources/catalog.h"

namespace ddp::data_pipeline_examples {

extern DataSets data;
extern const Dataset& train;
extern Sampler& sampler;
extern const Augmentation augmentation;
extern const std::span<std::uint8_t> pixels, a, b;
extern const std::uint64_t key, kCropStream;
extern const std::uint32_t index;
extern const std::int32_t other_share;
extern const Shape shape;
extern std::size_t step;
extern const std::size_t steps;
void train_step(std::span<const std::uint8_t> pixels, std::span<const std::int32_t> labels);

}  // namespace ddp::data_pipeline_examples
