// The bytes of a file from front to back, decompressed on the way where the file is gzipped.
//
//   ByteSource source("train-labels-idx1-ubyte.gz");
//   std::array<std::uint8_t, 8> header;
//   if (source.read(header) < header.size()) ...   // the file ends here
//
// Whether a file is gzipped is told by its first two bytes, not by its name. Every failure is an Error(ExitCode::data)
// that names the file and the byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

namespace ddp {

// The file of this path, or of this path with .gz behind it; the first that is there.
std::optional<std::filesystem::path> find_plain_or_gzipped(const std::filesystem::path& path);

class ByteSource {
 public:
  explicit ByteSource(const std::filesystem::path& path);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Fills `out` with the bytes that follow and returns how many these were: fewer than out.size() only at the end.
  // Throws where the file cannot be read and where its gzip data (RFC 1952) is damaged or ends early.
  std::size_t read(std::span<std::uint8_t> out);
  // Reads past up to `count` bytes and returns how many there were. A gzip checksum is verified on the way.
  std::uint64_t skip(std::uint64_t count);

 private:
  class File;
  class Inflater;
  std::unique_ptr<File> file_;
  std::unique_ptr<Inflater> inflater_;  // null: the file is not gzipped
};

}  // namespace ddp
