// The size and XXH3-128 hash of a file, which detect damaged checkpoints.
//
//   Hasher hasher;
//   hasher.update(bytes);
//   FileDigest digest = hasher.finish();   // digest.xxh3_128 as `xxh128sum` prints it
//
// XXH3-128 (Yann Collet, xxHash 0.8) finds any accident; it does not protect against deliberate changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

struct XXH3_state_s;

namespace ddp {

struct FileDigest {
  std::uint64_t size = 0;  // bytes
  std::string xxh3_128;    // 32 lower-case hexadecimal digits

  friend bool operator==(const FileDigest&, const FileDigest&) = default;
};

class Hasher {
 public:
  Hasher();
  void update(std::span<const std::byte> bytes);
  FileDigest finish() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
  std::uint64_t size_ = 0;
};

FileDigest digest_of(std::span<const std::byte> bytes);

// Reads the file in blocks. Throws Error(checkpoint) if it cannot be read.
FileDigest digest_of_file(const std::filesystem::path& path);

}  // namespace ddp
