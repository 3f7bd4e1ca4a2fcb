// Reads the bytes of a file sequentially, decompressing if it is gzipped.
//
//   ByteSource source("train-labels-idx1-ubyte.gz");
//   std::array<std::uint8_t, 8> header;
//   if (source.read(header) < header.size()) ...   // the file ends here
//
// gzip is detected by the first two bytes, not by the file name. Every failure is an Error(ExitCode::data) naming the
// file and the byte offset.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

namespace ddp {

// The file `path` or `path`.gz, whichever exists first.
std::optional<std::filesystem::path> find_plain_or_gzipped(const std::filesystem::path& path);

class ByteSource {
 public:
  explicit ByteSource(const std::filesystem::path& path);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Fills `out` with the next bytes and returns their number, fewer than out.size() only at the end of the file. Throws
  // if the file cannot be read, or if its gzip data (RFC 1952) is damaged or truncated.
  std::size_t read(std::span<std::uint8_t> out);
  // Skips up to `count` bytes and returns the number skipped. gzip checksums are still verified.
  std::uint64_t skip(std::uint64_t count);

 private:
  class File;
  class Inflater;
  std::unique_ptr<File> file_;
  std::unique_ptr<Inflater> inflater_;  // null: the file is not gzipped
};

}  // namespace ddp
