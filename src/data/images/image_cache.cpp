#include "data/images/image_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status/heartbeat.h"
#include "base/text/text.h"
#include "data/images/image_decoder.h"
#include "data/images/parallel.h"
#include "data/images/resizer.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

constexpr std::array<char, 8> kMagic = {'D', 'D', 'P', 'I', 'M', 'G', 'C', '2'};

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint64_t side = 0;
  std::uint64_t images = 0;
  std::uint64_t list_low = 0;  // XXH3-128 of the file list
  std::uint64_t list_high = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t entries_hash = 0;
  std::uint64_t hash = 0;  // of all preceding fields

  std::uint64_t own_hash() const { return XXH3_64bits(this, offsetof(Header, hash)); }
};
static_assert(sizeof(Header) == 64 && sizeof(ImageCache::Entry) == 32);

// Returns whether all bytes were read.
bool read_all(int descriptor, std::span<std::byte> bytes, std::uint64_t offset) {
  return read_at(descriptor, bytes, offset) == bytes.size();
}

[[noreturn]] void cannot_write(const fs::path& path, int error_number) {
  const bool full = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
  throw Error(ExitCode::data,
              fmt::format("cannot write the image cache {}: {}; {}name another folder, or give --image-cache off",
                          path.string(), errno_text(error_number),
                          full                    ? "free some space, "
                          : error_number == ELOOP ? "it is a symbolic link, which is not followed: remove it, "
                                                  : ""));
}

// Why a file is not used, or "". Where others may write to the folder, only those of this user, of root and of the folder's
// owner are.
std::string distrust(int descriptor, const fs::path& directory) {
  struct stat file {};
  struct stat folder {};
  if (::fstat(descriptor, &file) != 0 || ::stat(directory.c_str(), &folder) != 0) return errno_text(errno);
  if (!S_ISREG(file.st_mode)) return "is not a regular file";
  const bool shared = (folder.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (!shared || file.st_uid == ::geteuid() || file.st_uid == 0 || file.st_uid == folder.st_uid) return "";
  return fmt::format("belongs to another user (ID {}) in a folder to which others may write", file.st_uid);
}

void write_at(int descriptor, const void* from, std::size_t count, std::uint64_t offset, const fs::path& path) {
  const auto* bytes = static_cast<const char*>(from);
  while (count > 0) {
    const ::ssize_t written = ::pwrite(descriptor, bytes, count, static_cast<::off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) cannot_write(path, errno);
    bytes += written;
    count -= static_cast<std::size_t>(written);
    offset += static_cast<std::uint64_t>(written);
  }
}

// What was done to the pictures that are stored.
std::string key_of_pixels(const CachedImages& images) {
  if (images.evaluated != nullptr) return images.evaluated->recipe();
  return std::string(images.upright ? "upright" : "") + (images.filter == Interpolation::bicubic ? "bicubic" : "");
}

// Names, sizes and modification times; the latter two are 0 if stat fails.
XXH128_hash_t hash_list(const CachedImages& images) {
  std::string text = key_of_pixels(images);
  for (const std::string& file : images.files) {
    std::error_code error;
    const fs::path path = images.folder / file;
    const std::uintmax_t size = fs::file_size(path, error);
    const auto time = fs::last_write_time(path, error);
    text += fmt::format("{}\n{} {}\n", file, size, error ? 0 : time.time_since_epoch().count());
  }
  return XXH3_128bits(text.data(), text.size());
}

// There is one cache file per folder, size and number of images.
fs::path cache_path(const fs::path& directory, const CachedImages& images) {
  std::error_code error;
  const fs::path folder = fs::weakly_canonical(images.folder, error);
  const std::string text =
      fmt::format("{}\n{} {}{}", folder.string(), images.side, images.files.size(), key_of_pixels(images));
  return directory / fmt::format("images-{:016x}.cache", XXH3_64bits(text.data(), text.size()));
}

struct Opened {
  std::unique_ptr<ImageCache> cache;
  std::string reason;    // why there is no cache; empty if there is no file
  bool foreign = false;  // it is a link, or somebody else's
};

// Whether the values of an entry are plausible. Hashes detect only accidental damage, and the cache file is untrusted.
bool fits(const ImageCache::Entry& entry, std::uint64_t file_bytes) {
  if (entry.width == 0) return true;  // not decodable, never read
  // The program stores no image that is larger than its source, nor reads one with more pixels than this.
  const std::uint64_t source = std::uint64_t{entry.source_width} * entry.source_height;
  if (entry.height == 0 || entry.width > entry.source_width || entry.height > entry.source_height ||
      source > std::uint64_t{kMaxImagePixels}) {
    return false;
  }
  const std::uint64_t bytes = std::uint64_t{3} * entry.width * entry.height;
  return entry.offset <= file_bytes && bytes <= file_bytes - entry.offset;
}

Opened open_existing(const fs::path& path, const CachedImages& images, const XXH128_hash_t& list) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (file.get() < 0 && errno == ELOOP) return {nullptr, "is a symbolic link, which is not followed", true};
  if (file.get() < 0) return {nullptr, errno == ENOENT ? "" : errno_text(errno)};
  if (std::string why = distrust(file.get(), path.parent_path()); !why.empty()) return {nullptr, why, true};
  Header header;
  if (!read_all(file.get(), std::as_writable_bytes(std::span(&header, 1)), 0) || header.magic != kMagic ||
      header.hash != header.own_hash()) {
    return {nullptr, "is not an image cache or is damaged"};
  }
  if (header.side != static_cast<std::uint64_t>(images.side) || header.images != images.files.size() ||
      header.list_low != list.low64 || header.list_high != list.high64) {
    return {nullptr, "belongs to other files"};
  }
  const ::off_t size = ::lseek(file.get(), 0, SEEK_END);
  if (size < 0 || static_cast<std::uint64_t>(size) != header.file_bytes) {
    return {nullptr, fmt::format("is truncated: {} bytes instead of {}", size, header.file_bytes)};
  }
  std::vector<ImageCache::Entry> entries(images.files.size());
  const std::size_t bytes = entries.size() * sizeof(ImageCache::Entry);
  if (!read_all(file.get(), std::as_writable_bytes(std::span(entries)), sizeof header) ||
      XXH3_64bits(entries.data(), bytes) != header.entries_hash) {
    return {nullptr, "is damaged"};
  }
  if (!std::all_of(entries.begin(), entries.end(), [&](const auto& entry) { return fits(entry, header.file_bytes); })) {
    return {nullptr, "contains invalid images"};
  }
  return {std::make_unique<ImageCache>(file.release(), path, std::move(entries)), ""};
}

// The size with the shorter side reduced to `side`.
ImageSize reduced(const ImageSize& size, std::int64_t side) {
  const std::int64_t shorter = std::min(size.width, size.height);
  if (shorter <= side) return size;
  return {std::max(side, (size.width * side + shorter / 2) / shorter),
          std::max(side, (size.height * side + shorter / 2) / shorter)};
}

// Decodes one image; on failure the width of the entry is 0.
ImageCache::Entry decode_for_cache(const fs::path& path, const CachedImages& images, std::vector<std::uint8_t>& planes,
                                   std::vector<std::uint8_t>& pixels) {
  ImageCache::Entry entry;
  ImageDecoder& decoder = thread_decoder();
  try {
    decoder.load(path, images.upright);
    ImageSize source;
    ImageSize stored;
    const auto begin = [&](const ImageSize& size) {
      stored = size;
      planes.resize(static_cast<std::size_t>(size.width * size.height) * 3);
      pixels.resize(planes.size());
      return Shape{3, size.height, size.width};
    };
    if (images.evaluated != nullptr) {
      // The source is what is stored, of which all is read.
      source = {images.evaluated->shape.width, images.evaluated->shape.height};
      (void)begin(source);
      decoder.decode_shown(*images.evaluated, /*exactly=*/true, planes);
    } else {
      // The size is known once the header is read: decode the header first, then the image at the target size.
      (void)decoder.decode({[&](const ImageSize& size) {
                              source = size;
                              return Region{0, 0, 1, 1};
                            },
                            {1, 1}});
      const Shape shape = begin(reduced(source, images.side));
      decoder.decode([](const ImageSize& size) { return centre_region(size, 1, size); }, shape, planes, true,
                     images.filter);
    }
    interleave(planes, 3, pixels);
    entry.hash = XXH3_64bits(pixels.data(), pixels.size());
    entry.width = static_cast<std::uint32_t>(stored.width);
    entry.height = static_cast<std::uint32_t>(stored.height);
    entry.source_width = static_cast<std::uint32_t>(source.width);
    entry.source_height = static_cast<std::uint32_t>(source.height);
  } catch (const BadImage&) {
    // The reason is reported when the file is read.
    pixels.clear();
  }
  return entry;
}

// Logs the progress of long work every few seconds; thread-safe.
class ProgressLines {
 public:
  ProgressLines(std::size_t total, std::string_view what) : total_(total), what_(what) {}

  void count_one() {
    const std::size_t done = ++done_;
    const double time = now();
    double due = due_;
    if (time < due || !due_.compare_exchange_strong(due, time + kSeconds)) return;
    const double left = (time - begin_) * static_cast<double>(total_ - done) / static_cast<double>(done);
    log_info("{} {} of {}, {} left", what_, format_count(done), format_count(total_), format_duration(left));
  }

 private:
  static constexpr double kSeconds = 10;
  std::size_t total_;
  std::string_view what_;
  double begin_ = now();
  std::atomic<std::size_t> done_ = 0;
  std::atomic<double> due_ = begin_ + kSeconds;
};

fs::path part_path(const fs::path& path) {
  fs::path part = path;
  return part += ".part";
}

// Returns its descriptor. What a killed process has left is removed and never written to: it may be a link to another file.
int create_part(const fs::path& part) {
  if (::unlink(part.c_str()) != 0 && errno != ENOENT) cannot_write(part, errno);
  Descriptor file(::open(part.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (file.get() < 0) cannot_write(part, errno);
  return file.release();
}

// Waits while another process makes this cache. Whether it makes progress shows in the size of its file.
void lock_exclusively(int lock, const fs::path& path) {
  const auto locked = [&] {
    if (::flock(lock, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EINTR && errno != EWOULDBLOCK) cannot_write(path, errno);
    return false;
  };
  if (locked()) return;
  const LongActivity activity("waiting for another process that makes the image cache " + path.string());
  constexpr double kSilence = 2;
  const double begin = now();
  bool said = false;
  std::uintmax_t size = 0;
  while (!locked()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::error_code ignored;
    const std::uintmax_t grown = fs::file_size(part_path(path), ignored);
    if (grown != std::exchange(size, grown)) heartbeat();
    if (said || now() < begin + kSilence) continue;
    log_info("waiting for another process that makes the image cache {}", path.string());
    said = true;
  }
}

// Returns the descriptor of the lock of the process that makes the cache.
int open_lock(const fs::path& path) {
  fs::path lock_path = path;
  lock_path += ".lock";
  Descriptor lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0644));
  if (lock.get() < 0) cannot_write(lock_path, errno);
  const std::string why = distrust(lock.get(), path.parent_path());
  check(why.empty(), ExitCode::data, "{} {}; remove it, name another folder, or give --image-cache off",
        lock_path.string(), why);
  return lock.release();
}

// Before the work that would end in vain.
void remove_foreign(const fs::path& path, const std::string& reason) {
  check(::unlink(path.c_str()) == 0, ExitCode::data,
        "the image cache {} {} and cannot be removed: {}; name another folder, or give --image-cache off",
        path.string(), reason, errno_text(errno));
}

void build(const fs::path& path, const CachedImages& images, const XXH128_hash_t& list, int threads) {
  const LongActivity activity("building the image cache " + path.string());
  const double begin = now();
  log_info("decoding {} images of {} for the image cache {}", format_count(images.files.size()), images.folder.string(),
           path.string());
  const fs::path part = part_path(path);
  const Descriptor file(create_part(part));
  std::vector<ImageCache::Entry> entries(images.files.size());
  const std::size_t entry_bytes = entries.size() * sizeof(ImageCache::Entry);
  std::atomic<std::uint64_t> end = sizeof(Header) + entry_bytes;
  ProgressLines progress(entries.size(), "images decoded:");
  for_each_index(entries.size(), threads, [&](std::size_t i) {
    thread_local std::vector<std::uint8_t> planes;
    thread_local std::vector<std::uint8_t> pixels;
    entries[i] = decode_for_cache(images.folder / images.files[i], images, planes, pixels);
    entries[i].offset = end.fetch_add(pixels.size());
    write_at(file.get(), pixels.data(), pixels.size(), entries[i].offset, part);
    progress.count_one();
    heartbeat();
  });
  Header header;
  header.side = static_cast<std::uint64_t>(images.side);
  header.images = entries.size();
  header.list_low = list.low64;
  header.list_high = list.high64;
  header.file_bytes = end;
  header.entries_hash = XXH3_64bits(entries.data(), entry_bytes);
  header.hash = header.own_hash();
  write_at(file.get(), entries.data(), entry_bytes, sizeof header, part);
  write_at(file.get(), &header, sizeof header, 0, part);
  if (::fsync(file.get()) != 0 || ::rename(part.c_str(), path.c_str()) != 0) cannot_write(path, errno);
  sync_folder(path.parent_path(), ExitCode::data);
  log_info("the image cache {} has {} in {}", path.string(), format_bytes(header.file_bytes),
           format_duration(now() - begin));
}

}  // namespace

ImageCache::ImageCache(int descriptor, fs::path path, std::vector<Entry> entries)
    : descriptor_(descriptor), path_(std::move(path)), entries_(std::move(entries)) {}

ImageCache::~ImageCache() { ::close(descriptor_); }

const std::uint8_t* ImageCache::stored_pixels(const Entry& entry) const {
  thread_local std::vector<std::uint8_t> stored;
  const std::size_t bytes = std::size_t{3} * entry.width * entry.height;
  if (stored.size() < bytes) stored.resize(bytes);
  const std::span<std::byte> room = std::as_writable_bytes(std::span(stored).first(bytes));
  if (read_all(descriptor_, room, entry.offset) && XXH3_64bits(stored.data(), bytes) == entry.hash) {
    return stored.data();
  }
  // Without the file, the next run creates a new one.
  if (!warned_.exchange(true)) {
    std::error_code ignored;
    fs::remove(path_, ignored);
    log_warning("the image cache {} is damaged and was removed; the next run makes a new one", path_.string());
  }
  return nullptr;
}

namespace {

// A region of the original in the pixels that are stored.
Region scaled_to(const ImageCache::Entry& entry, Region region) {
  const double across = static_cast<double>(entry.width) / entry.source_width;
  const double down = static_cast<double>(entry.height) / entry.source_height;
  region.x *= across;
  region.width *= across;
  region.y *= down;
  region.height *= down;
  return region;
}

PictureResizer& cache_resizer() {
  thread_local PictureResizer resizer;
  return resizer;
}

}  // namespace

bool ImageCache::read(std::int64_t index, const RegionChooser& choose, const Shape& shape,
                      std::span<std::uint8_t> pixels, Interpolation filter) const {
  const Entry& entry = entries_[static_cast<std::size_t>(index)];
  const std::uint8_t* stored = entry.width == 0 ? nullptr : stored_pixels(entry);
  if (stored == nullptr) return false;
  const Region region = scaled_to(entry, choose({entry.source_width, entry.source_height}));
  cache_resizer().run({stored, entry.width, entry.height, 3}, region, {filter, false}, shape, pixels);
  return true;
}

bool ImageCache::read_shown(std::int64_t index, const Preprocessing& preprocessing,
                            std::span<std::uint8_t> pixels) const {
  const Entry& entry = entries_[static_cast<std::size_t>(index)];
  const std::uint8_t* stored = entry.width == 0 ? nullptr : stored_pixels(entry);
  if (stored == nullptr) return false;
  const ImageSize source{entry.source_width, entry.source_height};
  const Shape coloured = {3, preprocessing.shape.height, preprocessing.shape.width};
  cache_resizer().run_placed({stored, entry.width, entry.height, 3}, scaled_to(entry, preprocessing.region(source)),
                             {preprocessing.filter, false}, preprocessing.placement(source), coloured, pixels);
  return true;
}

std::unique_ptr<ImageCache> open_image_cache(const fs::path& directory, const CachedImages& images, int threads) {
  make_folders(directory, ExitCode::data);
  const fs::path path = cache_path(directory, images);
  const XXH128_hash_t list = hash_list(images);
  // A complete file appears at once.
  Opened found = open_existing(path, images, list);
  if (found.cache) return std::move(found.cache);
  const Descriptor lock(open_lock(path));
  lock_exclusively(lock.get(), path);
  found = open_existing(path, images, list);
  if (found.cache) return std::move(found.cache);
  if (found.foreign) remove_foreign(path, found.reason);
  if (!found.reason.empty()) log_warning("the image cache {} {}; making a new one", path.string(), found.reason);
  build(path, images, list, threads);
  found = open_existing(path, images, list);
  check(found.cache != nullptr, ExitCode::data,
        "the image cache {} {} right after it was written; check whether the files change and whether the disk is "
        "damaged, or "
        "give --image-cache off",
        path.string(), found.reason);
  return std::move(found.cache);
}

}  // namespace ddp
