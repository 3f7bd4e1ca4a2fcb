// Kept indexes of shards. The input is what stands between their first bytes and their hash, which mutations would rarely match.
#include "data/shards/record_index.h"

#include <xxhash.h>

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text = "DDPSHRD1" + std::string(data, data + size);
  const XXH64_hash_t hash = XXH3_64bits(text.data(), text.size());
  text.append(reinterpret_cast<const char*>(&hash), sizeof(hash));
  if (const auto index = ddp::parse_index(text)) {
    ddp::fuzz::require(ddp::index_text(*index) == text, "an index is not written as it was read");
  }
  return 0;
}
