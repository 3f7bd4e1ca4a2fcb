#include "data/pipeline/sample_key.h"

#include "base/random.h"

namespace ddp {

std::uint64_t sample_key(std::uint64_t seed, std::int64_t epoch, std::uint32_t index) {
  return Random(seed, static_cast<std::uint64_t>(epoch), index).next_u64();
}

std::uint64_t alternating_key(std::uint64_t seed, std::int64_t epoch, std::uint32_t index) {
  constexpr std::uint64_t kHighest = std::uint64_t{1} << 63U;
  const std::uint64_t first = sample_key(seed, 0, index) & kHighest;
  const std::uint64_t bit = epoch % 2 == 0 ? first : first ^ kHighest;
  return (sample_key(seed, epoch, index) & ~kHighest) | bit;
}

std::uint64_t batch_key(std::uint64_t seed, std::int64_t epoch, std::int64_t step) {
  // Above all epochs.
  constexpr std::uint64_t kStream = std::uint64_t{1} << 62U;
  return Random(seed, kStream + static_cast<std::uint64_t>(epoch), static_cast<std::uint32_t>(step)).next_u64();
}

std::uint64_t copy_seed(std::uint64_t seed, std::int64_t copy) {
  // Odd, so that copies differ.
  constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15;
  return seed + static_cast<std::uint64_t>(copy) * kStep;
}

}  // namespace ddp
