#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/status/heartbeat.h"
#include "base/text/text.h"

namespace ddp {
namespace {

// Read and written in chunks, so that the watchdog sees progress on a large file.
constexpr std::size_t kPieceBytes = std::size_t{16} << 20U;

// Docker and Podman leave one of these files in a container.
bool in_container() { return ::access("/.dockerenv", F_OK) == 0 || ::access("/run/.containerenv", F_OK) == 0; }

std::string advice(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "free disk space or use another folder";
    case EFBIG:
      return "raise the file size limit (ulimit -f) or use another folder";
    case EROFS:
      if (in_container()) {
        return "the file system is mounted read-only: mount a volume there without ':ro', or use another folder";
      }
      return "the file system is mounted read-only; use another folder";
    case EACCES:
    case EPERM:
      if (in_container()) {
        return fmt::format(
            "this container runs as user {}: change the owner of the folder or volume to that user, or start "
            "the container with --user set to its owner",
            ::geteuid());
      }
      return "check the permissions or use another folder";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case EIO:
      return "check the disk";
    case ELOOP:
      return "it is a symbolic link, which is not followed; remove it";
    default:
      return "check the path";
  }
}

int flags_of(File::Mode mode) {
  switch (mode) {
    case File::Mode::create:  // truncated once it is known whose it is
      return O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    case File::Mode::append:
      return O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    case File::Mode::create_new:
      return O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    case File::Mode::read:
      break;
  }
  // Without O_NONBLOCK the open itself waits for the other end of a FIFO.
  return O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
}

// fsync, where the file system knows it: devices and some network file systems answer EINVAL or ENOTSUP.
bool sync_descriptor(int descriptor) {
  int result = 0;
  do {
    result = ::fsync(descriptor);
  } while (result != 0 && errno == EINTR);
  return result == 0 || errno == EINVAL || errno == ENOTSUP;
}

// Calls `read_some(piece, done)` for pieces behind the `done` bytes filled so far until `bytes` is full or nothing more is read; returns the number of bytes
// filled.
template <class ReadSome>
std::size_t fill(std::span<std::byte> bytes, ExitCode code, const std::filesystem::path& path,
                 const ReadSome& read_some) {
  const FileActivity activity("reading " + path.string());
  std::size_t total = 0;
  while (total < bytes.size()) {
    const ssize_t count = read_some(bytes.subspan(total, std::min(bytes.size() - total, kPieceBytes)), total);
    if (count < 0) {
      if (errno == EINTR) continue;
      file_error(code, "read", path, errno);
    }
    heartbeat();
    if (count == 0) break;
    total += static_cast<std::size_t>(count);
  }
  return total;
}

void check_regular(const struct stat& status, const std::filesystem::path& path, ExitCode code) {
  check(S_ISREG(status.st_mode), code, "{} is not a regular file; check the path", path.string());
}

}  // namespace

void file_error(ExitCode code, std::string_view action, const std::filesystem::path& path, int error_number) {
  throw Error(
      code, fmt::format("cannot {} {}: {}; {}", action, path.string(), errno_text(error_number), advice(error_number)));
}

Descriptor::~Descriptor() {
  if (value_ >= 0) ::close(value_);
}

File::File(std::filesystem::path path, Mode mode, ExitCode code) : path_(std::move(path)), code_(code) {
  const FileActivity activity("opening " + path_.string());
  do {
    descriptor_ = ::open(path_.c_str(), flags_of(mode), 0666);
  } while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) file_error(code_, mode == Mode::read ? "open" : "create", path_, errno);
  if (mode == Mode::create_new) return;
  try {
    if (mode == Mode::read) {
      struct stat status {};
      if (::fstat(descriptor_, &status) != 0) file_error(code_, "read", path_, errno);
      check_regular(status, path_, code_);
    } else {
      check_own_file(descriptor_, path_, code_);
    }
    if (mode == Mode::create && size() > 0) truncate(0);
  } catch (...) {
    ::close(std::exchange(descriptor_, -1));
    throw;
  }
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), code_(other.code_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(code_, other.code_);
  return *this;
}

void File::write(std::span<const std::byte> bytes) {
  const FileActivity activity("writing " + path_.string());
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kPieceBytes));
    if (written < 0) {
      if (errno == EINTR) continue;
      file_error(code_, "write", path_, errno);
    }
    if (written == 0) file_error(code_, "write", path_, EIO);
    heartbeat();
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void File::write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

std::size_t File::read(std::span<std::byte> bytes) {
  return fill(bytes, code_, path_, [&](std::span<std::byte> piece, std::size_t /*done*/) {
    return ::read(descriptor_, piece.data(), piece.size());
  });
}

std::optional<std::size_t> read_at(int descriptor, std::span<std::byte> bytes, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ::ssize_t found =
        ::pread(descriptor, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (found < 0 && errno == EINTR) continue;
    if (found < 0) return std::nullopt;
    if (found == 0) break;
    done += static_cast<std::size_t>(found);
  }
  return done;
}

std::size_t File::read_at(std::span<std::byte> bytes, std::uint64_t offset) const {
  return fill(bytes, code_, path_, [&](std::span<std::byte> piece, std::size_t done) {
    return ::pread(descriptor_, piece.data(), piece.size(), static_cast<off_t>(offset + done));
  });
}

void File::sync() {
  const FileActivity activity("writing " + path_.string() + " to the disk");
  if (!sync_descriptor(descriptor_)) file_error(code_, "write", path_, errno);
}

void File::close() {
  // After EINTR Linux has closed the descriptor already; a second close could hit someone else's.
  const int descriptor = std::exchange(descriptor_, -1);
  if (descriptor >= 0 && ::close(descriptor) != 0 && errno != EINTR) file_error(code_, "write", path_, errno);
}

std::uint64_t File::size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) file_error(code_, "read", path_, errno);
  return static_cast<std::uint64_t>(status.st_size);
}

void File::truncate(std::uint64_t bytes) {
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) file_error(code_, "write", path_, errno);
}

void check_own_file(int descriptor, const std::filesystem::path& path, ExitCode code) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) file_error(code, "read", path, errno);
  if (S_ISCHR(status.st_mode)) return;
  check_regular(status, path, code);
  if (status.st_uid == ::geteuid() && status.st_nlink <= 1) return;
  struct stat folder {};
  const std::filesystem::path parent = path.has_parent_path() ? path.parent_path() : ".";
  if (::stat(parent.c_str(), &folder) != 0) file_error(code, "read", parent, errno);
  check((folder.st_mode & S_IWOTH) == 0, code,
        "{} was there before and {}, in a folder that all users may write to; remove it, or use another folder",
        path.string(),
        status.st_uid == ::geteuid() ? "has a second name" : fmt::format("belongs to user {}", status.st_uid));
}

std::string read_text(const std::filesystem::path& path, ExitCode code, std::uint64_t most) {
  File file(path, File::Mode::read, code);
  const std::uint64_t size = file.size();
  check(size <= most, code, "{}: has {}, more than the maximum of {}; replace or remove it", path.string(),
        format_bytes(size), format_bytes(most));
  std::string text(size, '\0');
  text.resize(file.read(std::as_writable_bytes(std::span(text))));
  return text;
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to, ExitCode code) {
  std::error_code error;
  std::filesystem::rename(from, to, error);
  if (error) file_error(code, "replace", to, error.value());
  const auto there = [](const std::filesystem::path& path) {
    std::error_code ignored;
    return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
  };
  check(there(to) && !there(from), code,
        "{} was renamed to {} without an error, but this has not happened; check the file system", from.string(),
        to.string());
}

void remove_temporaries(const std::filesystem::path& folder, ExitCode code) {
  std::error_code error;
  std::vector<std::filesystem::path> leftovers;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->path().filename().string().starts_with(kTemporaryPrefix)) leftovers.push_back(entry->path());
  }
  if (error) file_error(code, "read the folder", folder, error.value());
  for (const std::filesystem::path& leftover : leftovers) {
    std::filesystem::remove_all(leftover, error);
    if (error) file_error(code, "remove", leftover, error.value());
  }
}

void replace_by(const std::filesystem::path& path, const std::function<void(const std::filesystem::path&)>& write,
                ExitCode code) {
  // Other processes may write the same file at the same time, and other users must not be able to occupy the name.
  const std::filesystem::path temporary =
      path.parent_path() / fmt::format("{}{}-{}", kTemporaryPrefix, path.filename().string(), random_token());
  try {
    write(temporary);
    rename_path(temporary, path, code);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw;
  }
  sync_folder(path.parent_path(), code);
}

void replace_file(const std::filesystem::path& path, std::string_view text, ExitCode code) {
  const auto write = [&](const std::filesystem::path& temporary) {
    File file(temporary, File::Mode::create_new, code);
    file.write(text);
    file.sync();
    file.close();
  };
  replace_by(path, write, code);
}

void make_folders(const std::filesystem::path& path, ExitCode code) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && !std::filesystem::is_directory(path, error) && !error) error.assign(ENOTDIR, std::generic_category());
  if (error) file_error(code, "create the folder", path, error.value());
}

std::filesystem::path program_path() {
  std::error_code error;
  std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  check(!error, ExitCode::preflight, "cannot read /proc/self/exe: {}; mount /proc", error.message());
  return program;
}

void sync_folder(const std::filesystem::path& path, ExitCode code) {
  const std::filesystem::path folder = path.empty() ? std::filesystem::path(".") : path;
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) file_error(code, "open", folder, errno);
  const FileActivity activity("writing the folder " + folder.string() + " to the disk");
  const bool synced = sync_descriptor(descriptor);
  const int error_number = errno;
  ::close(descriptor);
  if (!synced) file_error(code, "write", folder, error_number);
}

}  // namespace ddp
