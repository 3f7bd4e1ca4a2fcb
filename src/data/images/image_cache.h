// Decoded images in one file, so that later epochs and runs need no decoding.
//
//   std::unique_ptr<ImageCache> cache = open_image_cache("cache", {"data/train", files, /*side=*/256}, /*threads=*/2);
//   if (!cache->read(17, choose, shape, pixels)) ...   // not in it: decode the file
//
// An image is stored as RGB bytes with its shorter side reduced to `side` pixels, or as it is where that is smaller:
// about 200 kB each for side 256. A region that is cut from it is a little less sharp than one cut from the original:
// what RandomResizedCrop magnifies has at most `side` pixels along the shorter side to draw on.
//
// The file: a header, an entry for each image, then the pixels. Header and entries are hashed (XXH3-64), the list of
// files with their sizes and times too (XXH3-128), and each image, which is verified when it is read. It is read by
// position rather than mapped, so that a file that is cut short under a run is an error and no signal.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/shape.h"
#include "data/images/region.h"

namespace ddp {

// What a cache is of.
struct CachedImages {
  const std::filesystem::path& folder;    // of the split
  const std::vector<std::string>& files;  // below the folder: "cat/cat.0.jpg"
  std::int64_t side = 0;
};

class ImageCache {
 public:
  struct Entry {
    std::uint64_t offset = 0;
    std::uint64_t hash = 0;    // XXH3-64 of the pixels
    std::uint32_t width = 0;   // 0: the file could not be decoded
    std::uint32_t height = 0;  //
    std::uint32_t source_width = 0;
    std::uint32_t source_height = 0;
  };

  // Takes over the descriptor.
  ImageCache(int descriptor, std::filesystem::path path, std::vector<Entry> entries);
  ~ImageCache();
  ImageCache(const ImageCache&) = delete;
  ImageCache& operator=(const ImageCache&) = delete;

  // The region of image `index` that `choose` picks, in the original's pixels, resized to `shape`. False where the file
  // could not be decoded when the cache was made, and, with one warning, where the cache is damaged here. May be called
  // by many threads at once.
  bool read(std::int64_t index, const RegionChooser& choose, const Shape& shape, std::span<std::uint8_t> pixels) const;

  const std::filesystem::path& path() const { return path_; }

 private:
  int descriptor_;
  std::filesystem::path path_;
  std::vector<Entry> entries_;
  mutable std::atomic<bool> warned_ = false;
};

// Opens the cache in `directory`, and makes it where there is none or it is of other files, truncated or damaged, on
// `threads` threads. Whoever comes meanwhile, other ranks too, waits for it. A crash leaves nothing that counts: the
// file appears under its name when it is whole and on the disk. Throws Error(data) where it cannot be written.
std::unique_ptr<ImageCache> open_image_cache(const std::filesystem::path& directory, const CachedImages& images,
                                             int threads);

}  // namespace ddp
