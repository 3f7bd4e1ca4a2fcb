// Files: an owning descriptor, complete reads and writes, and atomic replacement.
//
//   File file(path, File::Mode::create, ExitCode::checkpoint);
//   file.write(std::string_view("..."));
//   file.sync();
//   file.close();
//
//   replace_file(run_dir / "summary.csv", text, ExitCode::checkpoint);  // readers see the old or the new text
//
// Every failure throws Error with the given exit code, the path, the system's reason and the remedy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace ddp {

// An open file as the system numbers it, closed in the end; below 0: none.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  // Whoever calls this closes it.
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

class File {
 public:
  // read: a regular file only, so that a FIFO or a device in its place cannot block. create empties a file that exists,
  // append goes on at its end, create_new fails where the name exists; none of the three follows a symbolic link.
  enum class Mode { read, create, append, create_new };

  File(std::filesystem::path path, Mode mode, ExitCode code);
  // Closes without a word; call close() where a lost write must not pass unseen.
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Writes all bytes, straight to the system.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // Reads until `bytes` is full or the file ends; returns how many bytes were read.
  std::size_t read(std::span<std::byte> bytes);
  // The same from a byte of the file on, wherever read() stands.
  std::size_t read_at(std::span<std::byte> bytes, std::uint64_t offset) const;
  // Waits until what was written is on the disk.
  void sync();
  void close();

  // In bytes.
  std::uint64_t size() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  ExitCode code_;
};

// Throws Error(code, "cannot ACTION PATH: reason; what to do"), e.g. of file_error(code, "write", path, ENOSPC).
[[noreturn]] void file_error(ExitCode code, std::string_view action, const std::filesystem::path& path,
                             int error_number);

// More than any text that this program writes or reads as a whole, tensors aside.
inline constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 30U;

// The whole file; throws before it takes memory where the file is longer than `most`.
std::string read_text(const std::filesystem::path& path, ExitCode code, std::uint64_t most = kMaxTextBytes);

// Calls `write` with the path of a temporary file that it creates beside `path`, then renames that: at every instant
// `path` is wholly old or wholly new. A link at `path` is replaced, not followed.
void replace_by(const std::filesystem::path& path, const std::function<void(const std::filesystem::path&)>& write,
                ExitCode code);

// The same with `text` as the new content.
void replace_file(const std::filesystem::path& path, std::string_view text, ExitCode code);

// Makes a folder and those above it; one that is there already is fine.
void make_folders(const std::filesystem::path& path, ExitCode code);

// Waits until the names in a folder (files made, renamed, removed) are on the disk.
void sync_folder(const std::filesystem::path& path, ExitCode code);

}  // namespace ddp
