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

// The same but for the highest bit, which alternates: it is drawn once for (seed, sample), and inverted in every second
// epoch. Over the samples of an epoch it is as random as that of sample_key().
std::uint64_t alternating_key(std::uint64_t seed, std::int64_t epoch, std::uint32_t index);
// The seed for the keys of one of several copies of a sample in a batch; copy 0 has those of `seed`.
std::uint64_t copy_seed(std::uint64_t seed, std::int64_t copy);
// The key of what all samples of a step's global batch have in common.
std::uint64_t batch_key(std::uint64_t seed, std::int64_t epoch, std::int64_t step);
inline bool alternating_bit(std::uint64_t key) { return key >> 63U != 0; }

}  // namespace ddp
