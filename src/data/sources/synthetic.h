// synthetic: images of any size without files, for benchmarks and for testing networks. Each class has a coarse pattern
// of 8x8 pixel blocks per channel with added noise, so that a network can learn the classes.
//
//   std::unique_ptr<Dataset> train = make_synthetic(Split::train, {.shape = {3, 224, 224}});
//
// Each image is a function of (split, index) alone, generated on reading; nothing is kept in memory.
#pragma once

#include <cstdint>
#include <memory>

#include "data/sources/dataset.h"

namespace ddp {

inline constexpr std::int64_t kSyntheticTrainSize = 10000;
inline constexpr std::int64_t kSyntheticTestSize = 1000;

struct SyntheticOptions {
  Shape shape = {3, 224, 224};
  std::int64_t limit = 0;  // the first images only; 0: all
};

// Images in 10 classes. Sample i belongs to class i mod 10.
std::unique_ptr<Dataset> make_synthetic(Split split, const SyntheticOptions& options);

}  // namespace ddp
