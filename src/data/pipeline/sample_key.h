// The key of a sample's random numbers in an epoch: what is random about a sample (its augmentation, its dropout masks)
// is drawn from it, and so is the same on whichever rank and thread the sample comes to lie.
//
//   const std::uint64_t key = sample_key(seed, epoch, index);
//   Random crop(key, kCropStream);      // each use has a stream of its own
#pragma once

#include <cstdint>

namespace ddp {

// The first 64 bits of the stream that Random keeps for (seed, epoch, sample).
std::uint64_t sample_key(std::uint64_t seed, std::int64_t epoch, std::uint32_t index);

}  // namespace ddp
