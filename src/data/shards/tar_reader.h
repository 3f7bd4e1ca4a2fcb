// The members of a tar file, by their headers alone.
//
//   TarReader tar(file);                    // base/file.h
//   while (std::optional<TarMember> member = tar.next()) ...
//
// POSIX.1-2001 (ustar, PAX) and GNU tar's long names and base-256 sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/file.h"

namespace ddp {

struct TarMember {
  std::string name;
  std::uint64_t offset = 0;  // of its data
  std::uint64_t bytes = 0;
  std::string damage = {};  // why it cannot be used: "is truncated"; then `offset` is that of the header
};

class TarReader {
 public:
  // The file must outlive it.
  explicit TarReader(const File& file) : file_(file), end_(file.size()) {}

  // The next regular file or damaged part; nothing at the end. Behind a damaged header it goes on at the next good one.
  std::optional<TarMember> next();
  // Whether the file began with a good header, or is an empty archive.
  bool is_tar() const { return is_tar_; }

 private:
  // The data of a long name or of a PAX header.
  std::string text_of(std::uint64_t offset, std::uint64_t bytes) const;
  TarMember damaged(std::uint64_t header, const std::string& what);

  const File& file_;
  std::uint64_t end_;
  std::uint64_t next_ = 0;
  bool is_tar_ = false;
  bool has_end_ = false;  // or it was reported that there is none
};

}  // namespace ddp
