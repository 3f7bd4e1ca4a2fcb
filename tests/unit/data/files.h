// Files for tests: a temporary folder, IDX contents, gzip, and the text of an error.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace ddp {

using Bytes = std::vector<std::uint8_t>;

// A folder that is removed with its object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Creates the folders above it.
void write_file(const std::filesystem::path& path, std::span<const std::uint8_t> bytes);
void write_file(const std::filesystem::path& path, const std::string& text);
// All bytes of a file.
Bytes content_of(const std::filesystem::path& path);
Bytes gzip(std::span<const std::uint8_t> bytes);
Bytes random_bytes(std::size_t count, std::uint64_t seed);
// An IDX file of unsigned bytes that declares `dimensions` and contains `elements`, whether or not they match.
Bytes idx_file(std::span<const std::uint32_t> dimensions, std::span<const std::uint8_t> elements);

// Returns the message of the Error(code) that `action` throws; the test fails if it throws nothing or another error, or
// if the message has more than one line.
std::string error_of(ExitCode code, const std::function<void()>& action);

}  // namespace ddp
