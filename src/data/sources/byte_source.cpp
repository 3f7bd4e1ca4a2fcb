#include "data/sources/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/status/heartbeat.h"

namespace ddp {

// An open file with a look-ahead buffer.
class ByteSource::File {
 public:
  explicit File(const std::filesystem::path& path)
      : name_(path.string()),
        buffer_(std::size_t{1} << 18U),
        descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {  // open() must not block on a pipe
    check(descriptor_ >= 0, ExitCode::data, "{}: cannot be opened: {}", name_, errno_text(errno));
    struct stat status {};
    const bool regular = fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
    if (!regular) {
      close(descriptor_);
      throw Error(ExitCode::data, fmt::format("{}: is not a regular file", name_));
    }
  }
  ~File() { close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& name() const { return name_; }
  // The offset in the file of the first byte of available().
  std::uint64_t offset() const { return offset_; }
  // The bytes read but not yet consumed.
  std::span<std::uint8_t> available() { return std::span(buffer_).subspan(begin_, end_ - begin_); }
  void consume(std::size_t bytes) {
    begin_ += bytes;
    offset_ += bytes;
  }
  // Reads more if the buffer is empty; returns false at the end of the file.
  bool fill() {
    if (begin_ < end_) return true;
    begin_ = 0;
    end_ = read_some(buffer_);
    return end_ > 0;
  }
  // Moves up to out.size() bytes to `out`, bypassing the buffer if it is empty and `out` is large.
  std::size_t read(std::span<std::uint8_t> out) {
    std::size_t done = 0;
    while (done < out.size()) {
      if (begin_ == end_ && out.size() - done >= buffer_.size()) {
        const std::size_t bytes = read_some(out.subspan(done));
        if (bytes == 0) break;
        offset_ += bytes;
        done += bytes;
        continue;
      }
      if (!fill()) break;
      const std::size_t bytes = std::min(out.size() - done, available().size());
      std::copy_n(available().begin(), bytes, out.begin() + static_cast<std::ptrdiff_t>(done));
      consume(bytes);
      done += bytes;
    }
    return done;
  }

 private:
  std::size_t read_some(std::span<std::uint8_t> out) const {
    const FileActivity activity("reading " + name_);
    for (;;) {
      const ssize_t bytes = ::read(descriptor_, out.data(), out.size());
      if (bytes >= 0) {
        heartbeat();
        return static_cast<std::size_t>(bytes);
      }
      check(errno == EINTR, ExitCode::data, "{}: cannot be read: {}", name_, errno_text(errno));
    }
  }

  std::string name_;
  std::vector<std::uint8_t> buffer_;
  int descriptor_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t offset_ = 0;
};

// zlib's inflate over a File with one or more concatenated gzip members.
class ByteSource::Inflater {
 public:
  Inflater() {
    const int result = inflateInit2(&stream_, 16 + MAX_WBITS);  // 16: gzip format only
    check(result == Z_OK, ExitCode::out_of_memory, "zlib cannot be started (code {}): out of memory", result);
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  std::size_t read(File& file, std::span<std::uint8_t> out) {
    std::size_t done = 0;
    while (done < out.size()) {
      const bool more = file.fill();
      if (!more && member_ended_) break;
      check(more, ExitCode::data, "{}: the gzip data ends early, after byte {}: the file is truncated", file.name(),
            file.offset());
      if (member_ended_) start_member();
      done += inflate_some(file, out.subspan(done));
    }
    return done;
  }

 private:
  void start_member() {
    DDP_ASSERT(inflateReset(&stream_) == Z_OK);
    member_ended_ = false;
  }

  std::size_t inflate_some(File& file, std::span<std::uint8_t> out) {
    constexpr std::size_t kMost = std::size_t{1} << 30U;  // zlib counts in 32 bits
    const std::span<std::uint8_t> in = file.available();
    const std::size_t room = std::min(out.size(), kMost);
    stream_.next_in = in.data();
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = out.data();
    stream_.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    file.consume(in.size() - stream_.avail_in);
    check(result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR, ExitCode::data,
          "{}: the gzip data is damaged near byte {} ({})", file.name(), file.offset(),
          stream_.msg != nullptr ? stream_.msg : zError(result));
    member_ended_ = result == Z_STREAM_END;
    return room - stream_.avail_out;
  }

  z_stream stream_{};
  bool member_ended_ = false;
};

ByteSource::ByteSource(const std::filesystem::path& path) : file_(std::make_unique<File>(path)) {
  if (!file_->fill()) return;
  const std::span<const std::uint8_t> start = file_->available();
  if (start.size() >= 2 && start[0] == 0x1f && start[1] == 0x8b) inflater_ = std::make_unique<Inflater>();
}

ByteSource::~ByteSource() = default;

std::size_t ByteSource::read(std::span<std::uint8_t> out) {
  return inflater_ ? inflater_->read(*file_, out) : file_->read(out);
}

std::uint64_t ByteSource::skip(std::uint64_t count) {
  std::vector<std::uint8_t> scratch(static_cast<std::size_t>(std::min<std::uint64_t>(count, 1U << 18U)));
  std::uint64_t skipped = 0;
  while (skipped < count) {
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(scratch.size(), count - skipped));
    const std::size_t bytes = read(std::span(scratch).first(wanted));
    skipped += bytes;
    if (bytes < wanted) break;
  }
  return skipped;
}

std::optional<std::filesystem::path> find_plain_or_gzipped(const std::filesystem::path& path) {
  for (const char* ending : {"", ".gz"}) {
    std::filesystem::path spelled = path;
    spelled += ending;
    std::error_code error;
    if (std::filesystem::exists(spelled, error)) return spelled;
  }
  return std::nullopt;
}

}  // namespace ddp
