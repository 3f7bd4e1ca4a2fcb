// The key of a sample's random numbers in an epoch. Augmentation and dropout masks are drawn from it, so they do not
// depend on the rank or thread that processes the sample.
//
//   const std::uint64_t key = sample_key(seed, epoch, index);
//   Random crop(key, kCropStream);      // each use has its own stream
#pragma once

#include <cstdint>

namespace ddp {

// The first 64 bits of the Random stream for (seed, epoch, sample).
std::uint64_t sample_key(std::uint64_t seed, std::int64_t epoch, std::uint32_t index);

}  // namespace ddp
