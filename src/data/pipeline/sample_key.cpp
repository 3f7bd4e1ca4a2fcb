#include "data/pipeline/sample_key.h"

#include "base/random.h"

namespace ddp {

std::uint64_t sample_key(std::uint64_t seed, std::int64_t epoch, std::uint32_t index) {
  return Random(seed, static_cast<std::uint64_t>(epoch), index).next_u64();
}

}  // namespace ddp
