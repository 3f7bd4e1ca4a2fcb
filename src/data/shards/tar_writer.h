// Writes a tar file, member by member.
//
//   TarWriter tar("shards/train-0000.tar", ExitCode::data);
//   tar.add("00000017.cls", "3");
//   tar.finish();   // the file appears under its name
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"

namespace ddp {

class TarWriter {
 public:
  // Writes to `path` with ".part" behind it. Throws Error(code) if that cannot be created.
  TarWriter(std::filesystem::path path, ExitCode code);

  // `name` has at most 100 bytes. Format: ustar; times are 0, so that the same members give the same bytes.
  void add(std::string_view name, std::string_view data);
  // All members so far, with their headers.
  std::uint64_t bytes() const { return bytes_; }
  // Writes the end, syncs, and renames.
  void finish();

 private:
  void write(std::string_view text);

  std::filesystem::path path_;
  File file_;
  std::string buffer_;
  std::uint64_t bytes_ = 0;
};

}  // namespace ddp
