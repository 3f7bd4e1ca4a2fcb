// Decoded images in one file, so that later epochs and runs need no decoding.
//
//   std::unique_ptr<ImageCache> cache = open_image_cache("cache", {"data/train", files, /*side=*/256}, /*threads=*/2);
//   if (!cache->read(17, choose, shape, pixels)) ...   // not in it: decode the file
//
// For training an image is stored as RGB bytes with its shorter side reduced to `side` pixels, or unchanged if it is smaller:
// about 200 kB each for side 256. A region cut from it is slightly less sharp than one cut from the original, since
// RandomResizedCrop has at most `side` pixels along the shorter side to enlarge. For evaluation it is stored as the network
// reads it.
//
// The file: a header, an entry for each image, then the pixels. Header and entries are hashed (XXH3-64), the list of
// files with their sizes and times is hashed with XXH3-128, and the hash of each image is verified when it is read. The
// file is read with pread() rather than mapped, so that truncation during a run is an error and not SIGBUS.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/types/shape.h"
#include "data/formats/region.h"
#include "data/images/preprocessing.h"

namespace ddp {

// The images that a cache contains.
struct CachedImages {
  const std::filesystem::path& folder;    // of the split
  const std::vector<std::string>& files;  // below the folder: "cat/cat.0.jpg"
  std::int64_t side = 0;
  const Preprocessing* evaluated = nullptr;  // what is stored is the result of this; null: images for training
  bool upright = true;                       // turned as the EXIF orientation says
  Interpolation filter = Interpolation::bilinear;
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

  // Takes ownership of the descriptor.
  ImageCache(int descriptor, std::filesystem::path path, std::vector<Entry> entries);
  ~ImageCache();
  ImageCache(const ImageCache&) = delete;
  ImageCache& operator=(const ImageCache&) = delete;

  // The region of image `index` that `choose` picks, in pixels of the original, resized to `shape`. Returns false if
  // the file could not be decoded when the cache was created, or if this part of the cache is damaged, which is logged
  // once. Thread-safe.
  bool read(std::int64_t index, const RegionChooser& choose, const Shape& shape, std::span<std::uint8_t> pixels,
            Interpolation filter = Interpolation::bilinear) const;
  // The same of what `preprocessing` shows of the image, in RGB.
  bool read_shown(std::int64_t index, const Preprocessing& preprocessing, std::span<std::uint8_t> pixels) const;

  const std::filesystem::path& path() const { return path_; }

 private:
  // The pixels of an image that is not empty, in a buffer of this thread; null if they are damaged.
  const std::uint8_t* stored_pixels(const Entry& entry) const;

  int descriptor_;
  std::filesystem::path path_;
  std::vector<Entry> entries_;
  mutable std::atomic<bool> warned_ = false;
};

// Opens the cache in `directory`; creates it with `threads` threads if it is missing, belongs to other files, or is
// truncated or damaged. Other processes, including other ranks, wait meanwhile. The file appears under its name only
// when it is complete and synced, so a crash leaves no partial cache. Links are never followed, and in a folder to which
// others may write only files of this user, root and the folder's owner are read. Throws Error(data) if it cannot be
// written.
std::unique_ptr<ImageCache> open_image_cache(const std::filesystem::path& directory, const CachedImages& images,
                                             int threads);

}  // namespace ddp
