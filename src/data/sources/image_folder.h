// Images in one folder per class, decoded on reading.
//
//   FolderListing listing = list_image_folder("data/cats-vs-dogs");
//   ImageFolder train(listing.train, listing.classes, {.shape = {3, 224, 224}}, std::make_shared<BadSamples>(0));
//
// read() combines Resize(size * 256 / 224) and CenterCrop(size) of PyTorch's training scripts in one step: the largest
// central rectangle with the shape's aspect ratio, reduced to 224/256, resized to the shape. Grey images are made of
// colours as by Pillow's convert("L").
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

// The fraction of the shorter side used in evaluation.
constexpr double kCentreShare = 224.0 / 256.0;

struct ImageFolderConfig {
  Shape shape = {3, 224, 224};       // of the images; one channel: grey
  std::int64_t limit = 0;            // 0: all; otherwise this many, evenly from all classes
  std::filesystem::path cache = {};  // the folder of a cache of decoded images (data/images/image_cache.h); empty: none
  int threads = 1;                   // for creating the cache
};

class ImageFolder : public Dataset {
 public:
  ImageFolder(const FolderSplit& split, const std::vector<std::string>& classes, const ImageFolderConfig& config,
              std::shared_ptr<BadSamples> bad);

  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override;
  // An unreadable image is replaced by the next readable one by index. Throws Error(data) if there are too many, or if
  // no image is readable.
  std::int64_t read_region(std::int64_t index, const RegionChooser& choose,
                           std::span<std::uint8_t> pixels) const override;
  int label(std::int64_t index) const override;
  std::string file(std::int64_t index) const override;
  bool fixed() const override { return false; }

  // A class that has files of which none can be read, and why the first cannot.
  struct UnreadableClass {
    std::int32_t label = 0;
    std::string reason;  // "photos/train/cat/1.jpg: is empty"
  };
  // Reads one file of each class if all is well; reports none to BadSamples.
  std::vector<UnreadableClass> unreadable_classes(int threads) const;

  std::string path(std::int64_t index) const;

 private:
  // What read() takes of an image.
  RegionChooser centre_chooser() const;
  // Writes the region of this very image in RGB. Throws BadImage if it cannot be read.
  void read_one(std::int64_t index, const RegionChooser& choose, std::span<std::uint8_t> pixels) const;
  // The same as read_region(), in RGB.
  std::int64_t read_colours(std::int64_t index, const RegionChooser& choose, std::span<std::uint8_t> pixels) const;

  std::filesystem::path folder_;
  std::vector<std::string> files_;  // relative to the folder
  std::vector<std::int32_t> labels_;
  std::shared_ptr<BadSamples> bad_;
  std::unique_ptr<ImageCache> cache_;  // or null
};

}  // namespace ddp
