// Images in folders of classes, decoded when they are read.
//
//   FolderListing listing = list_image_folder("data/cats-vs-dogs");
//   ImageFolder train(listing.train, listing.classes, {.image_size = 224}, std::make_shared<BadSamples>(0));
//
// read() gives what training scripts of PyTorch call Resize(image_size * 256 / 224) and CenterCrop(image_size), in one
// step: the square in the middle, 224/256 of the shorter side, resized to image_size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/images/image_cache.h"
#include "data/sources/bad_samples.h"
#include "data/sources/dataset.h"
#include "data/sources/folder_listing.h"

namespace ddp {

// The share of the shorter side that evaluation sees.
constexpr double kCentreShare = 224.0 / 256.0;

struct ImageFolderConfig {
  std::int64_t image_size = 224;     // of the square images
  std::int64_t limit = 0;            // 0: all; else as many as that, dealt evenly over the classes
  std::filesystem::path cache = {};  // the folder of a cache of decoded images (data/images/image_cache.h); empty: none
  int threads = 1;                   // to make the cache with
};

class ImageFolder : public Dataset {
 public:
  ImageFolder(const FolderSplit& split, const std::vector<std::string>& classes, const ImageFolderConfig& config,
              std::shared_ptr<BadSamples> bad);

  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override;
  // Where an image cannot be read, the next one by index that can stands in for it. Throws Error(data) where there are
  // too many of them, or none can be read.
  std::int64_t read_region(std::int64_t index, const RegionChooser& choose,
                           std::span<std::uint8_t> pixels) const override;
  int label(std::int64_t index) const override;
  bool fixed() const override { return false; }

  std::string path(std::int64_t index) const;

 private:
  std::filesystem::path folder_;
  std::vector<std::string> files_;  // below the folder
  std::vector<std::int32_t> labels_;
  std::shared_ptr<BadSamples> bad_;
  std::unique_ptr<ImageCache> cache_;  // or null
};

}  // namespace ddp
