// Files: an owning descriptor, complete reads and writes, and atomic replacement.
//
//   File file(path, File::Mode::create_new, ExitCode::checkpoint);
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
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace ddp {

// Owns a file descriptor; negative if empty.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  // Transfers ownership to the caller.
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

// Reads from an offset until `bytes` is full or the file ends; returns how many bytes were read, or nothing with the reason in
// errno.
std::optional<std::size_t> read_at(int descriptor, std::span<std::byte> bytes, std::uint64_t offset);

class File {
 public:
  // read: a regular file only, so that a FIFO or a device cannot block. create truncates an existing file, append
  // writes at its end, create_new fails if the name exists; none of the three follows a symbolic link, nor writes to what
  // another user has put into a folder of all users such as /tmp.
  enum class Mode { read, create, append, create_new };

  File(std::filesystem::path path, Mode mode, ExitCode code);
  // Ignores errors; call close() to detect lost writes.
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Writes all bytes, unbuffered.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // Reads until `bytes` is full or the file ends; returns how many bytes were read.
  std::size_t read(std::span<std::byte> bytes);
  // The same starting at an offset in the file, independently of read().
  std::size_t read_at(std::span<std::byte> bytes, std::uint64_t offset) const;
  // Waits until all written data is on disk.
  void sync();
  void close();

  // In bytes.
  std::uint64_t size() const;
  // Removes what is behind the first `bytes`.
  void truncate(std::uint64_t bytes);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  ExitCode code_;
};

// Throws Error(code, "cannot ACTION PATH: reason; remedy"), e.g. file_error(code, "write", path, ENOSPC).
[[noreturn]] void file_error(ExitCode code, std::string_view action, const std::filesystem::path& path,
                             int error_number);

// Throws unless what was opened for writing is a device, or a regular file that another user cannot have put there: in a
// folder that all users may write to it belongs to this user and has no second name.
void check_own_file(int descriptor, const std::filesystem::path& path, ExitCode code);

// An upper bound on any text that this program reads or writes as a whole, except tensors.
inline constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 30U;

// The whole file; throws before it allocates memory if the file is longer than `most`.
std::string read_text(const std::filesystem::path& path, ExitCode code, std::uint64_t most = kMaxTextBytes);

// Renames a file, link or folder, and looks whether this has happened: some file systems report success too early.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to, ExitCode code);

// The beginning of the names of temporary files.
inline constexpr const char* kTemporaryPrefix = ".tmp-";

// Removes what processes that were killed have left in a folder, but not in those below it.
void remove_temporaries(const std::filesystem::path& folder, ExitCode code);

// Calls `write` with the path of a temporary file beside `path`, then renames it, so `path` is replaced atomically. A
// link at `path` is replaced, not followed.
void replace_by(const std::filesystem::path& path, const std::function<void(const std::filesystem::path&)>& write,
                ExitCode code);

// The same with `text` as the new content.
void replace_file(const std::filesystem::path& path, std::string_view text, ExitCode code);

// Creates a folder and its parents if they do not exist.
void make_folders(const std::filesystem::path& path, ExitCode code);

// Path of the running program, without links. Throws Error(preflight) if /proc is not mounted.
std::filesystem::path program_path();

// Waits until the entries of a folder (files created, renamed, removed) are on disk.
void sync_folder(const std::filesystem::path& path, ExitCode code);

}  // namespace ddp
