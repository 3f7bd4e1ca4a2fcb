#include "checkpoint/digest.h"

#include <xxhash.h>

#include <new>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace ddp {

void Hasher::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

Hasher::Hasher() : state_(XXH3_createState()) {
  if (state_ == nullptr || XXH3_128bits_reset(state_.get()) != XXH_OK) throw std::bad_alloc();
}

void Hasher::update(std::span<const std::byte> bytes) {
  DDP_ASSERT(XXH3_128bits_update(state_.get(), bytes.data(), bytes.size()) == XXH_OK);
  size_ += bytes.size();
}

FileDigest Hasher::finish() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  return {size_, fmt::format("{:016x}{:016x}", hash.high64, hash.low64)};
}

FileDigest digest_of(std::span<const std::byte> bytes) {
  Hasher hasher;
  hasher.update(bytes);
  return hasher.finish();
}

FileDigest digest_of_file(const std::filesystem::path& path) {
  File file(path, File::Mode::read, ExitCode::checkpoint);
  std::vector<std::byte> piece(std::size_t{1} << 20U);
  Hasher hasher;
  for (std::size_t count = piece.size(); count == piece.size();) {
    count = file.read(piece);
    hasher.update(std::span(piece).first(count));
  }
  return hasher.finish();
}

}  // namespace ddp
