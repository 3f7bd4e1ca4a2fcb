// The packed image cache. Hashes of 0 are filled in, so that mutations can get past them.
#include "data/images/image_cache.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>

#include "fuzz.h"
#include "support/temporary_folder.h"

namespace ddp::fuzz {
namespace {

constexpr std::size_t kImages = 2;
constexpr std::int64_t kSide = 8;
// Offsets of header fields (src/data/images/image_cache.cpp).
constexpr std::size_t kListHash = 24;
constexpr std::size_t kFileBytes = 40;
constexpr std::size_t kEntriesHash = 48;
constexpr std::size_t kHeaderHash = 56;
constexpr std::size_t kHeader = 64;
constexpr std::size_t kEntries = kHeader + kImages * sizeof(ImageCache::Entry);

std::uint64_t number_at(const Bytes& file, std::size_t at) {
  std::uint64_t value = 0;
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

void put(Bytes& file, std::size_t at, std::uint64_t value) { std::memcpy(file.data() + at, &value, sizeof value); }

void fill(Bytes& file, std::size_t at, std::uint64_t value) {
  if (number_at(file, at) == 0) put(file, at, value);
}

// A cache of two files that do not exist, with a valid cache file.
class Cache {
 public:
  Cache() : files_{"a.png", "b.png"} {
    open();
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      if (entry.path().extension() == ".cache") path_ = entry.path();
    }
    std::ifstream stream(path_, std::ios::binary);
    stream.read(reinterpret_cast<char*>(good_.data()), static_cast<std::streamsize>(good_.size()));
    require(stream.gcount() == static_cast<std::streamsize>(good_.size()), "no cache was made");
  }

  std::unique_ptr<ImageCache> open() const {
    return open_image_cache(folder_.path(), {images_, files_, kSide}, /*threads=*/1);
  }
  void assign(const Bytes& file) const {
    std::ofstream stream(path_, std::ios::binary | std::ios::trunc);
    stream.write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  }
  // Fills in the hashes, the file size and the hash of the list of files where they are 0.
  void seal(Bytes& file) const {
    if (file.size() < kEntries || number_at(file, kHeaderHash) != 0) return;
    for (std::size_t i = 0; i < kImages; ++i) {
      const std::size_t at = kHeader + i * sizeof(ImageCache::Entry);
      ImageCache::Entry entry;
      std::memcpy(&entry, file.data() + at, sizeof entry);
      const std::uint64_t bytes = std::uint64_t{3} * entry.width * entry.height;
      if (entry.hash != 0 || entry.offset > file.size() || bytes > file.size() - entry.offset) continue;
      entry.hash = XXH3_64bits(file.data() + entry.offset, bytes);
      std::memcpy(file.data() + at, &entry, sizeof entry);
    }
    fill(file, kListHash, number_at(Bytes(good_.begin(), good_.end()), kListHash));
    fill(file, kListHash + 8, number_at(Bytes(good_.begin(), good_.end()), kListHash + 8));
    fill(file, kFileBytes, file.size());
    fill(file, kEntriesHash, XXH3_64bits(file.data() + kHeader, kEntries - kHeader));
    put(file, kHeaderHash, XXH3_64bits(file.data(), kHeaderHash));
  }

 private:
  TemporaryFolder folder_;
  std::filesystem::path images_ = "/nonexistent/images";
  std::vector<std::string> files_;
  std::filesystem::path path_;
  std::array<std::uint8_t, kEntries> good_{};
};

}  // namespace
}  // namespace ddp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using ddp::ImageSize;
  using ddp::Region;
  namespace fuzz = ddp::fuzz;
  static const fuzz::Cache cache;
  fuzz::Bytes file(data, data + size);
  cache.seal(file);
  cache.assign(file);
  constexpr ddp::Shape kShape{3, 8, 6};
  std::vector<std::uint8_t> pixels(kShape.size());
  fuzz::parses([&] {
    const std::unique_ptr<ddp::ImageCache> opened = cache.open();
    for (std::size_t i = 0; i < fuzz::kImages; ++i) {
      const auto index = static_cast<std::int64_t>(i);
      opened->read(
          index,
          [](const ImageSize& image) {
            return Region{0, 0, static_cast<double>(image.width), static_cast<double>(image.height)};
          },
          kShape, pixels);
      opened->read(
          index, [](const ImageSize& image) { return ddp::centre_region(image, 0.3); }, kShape, pixels);
    }
  });
  return 0;
}
