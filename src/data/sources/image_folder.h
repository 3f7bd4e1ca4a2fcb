// Images in one folder per class or in shards, decoded on reading.
//
//   FolderListing listing = list_image_folder("data/cats-vs-dogs");
//   const Preprocessing preprocessing{.shape = {3, 224, 224}};
//   ImageFolder train(listing.train, listing.classes, {preprocessing}, std::make_shared<BadSamples>(0));
//
// What is done to a picture is in data/images/preprocessing.h. Grey images are made of colours as by Pillow's
// convert("L").
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/images/image_cache.h"
#include "data/images/preprocessing.h"
#include "data/index/bad_samples.h"
#include "data/index/folder_listing.h"
#include "data/sources/dataset.h"
#include "data/sources/picture_store.h"

namespace ddp {

struct ImageFolderConfig {
  Preprocessing preprocessing = {};
  std::int64_t limit = 0;            // 0: all; otherwise this many, evenly from all classes
  std::filesystem::path cache = {};  // the folder of a cache of decoded images (data/images/image_cache.h); empty: none
  int threads = 1;                   // for creating the cache
  bool evaluated = false;            // the cache is for read(), otherwise for training
};

class ImageFolder : public Dataset {
 public:
  ImageFolder(const FolderSplit& split, const std::vector<std::string>& classes, const ImageFolderConfig& config,
              std::shared_ptr<BadSamples> bad);
  // Pictures of shards: `records` have the labels of `classes`; without a cache.
  ImageFolder(const std::string& name, std::vector<Shard> shards, std::vector<Record> records,
              const std::vector<std::string>& classes, const ImageFolderConfig& config,
              std::shared_ptr<BadSamples> bad);

  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override;
  std::int64_t read_plain(std::int64_t index, std::span<std::uint8_t> pixels) const override;
  // An unreadable image is replaced by the next readable one by index. Throws Error(data) if there are too many, or if
  // no image is readable.
  std::int64_t read_region(std::int64_t index, const RegionChooser& choose,
                           std::span<std::uint8_t> pixels) const override;
  int label(std::int64_t index) const override;
  bool load(std::int64_t index, ImageDecoder& decoder) const override {
    pictures_->load(index, decoder, preprocessing_.upright);
    return true;
  }
  std::string file(std::int64_t index) const override;
  bool fixed() const override { return false; }
  // All if there are few pixels and pictures have the network's size already, so that the result is that of the same images
  // in another format.
  std::int64_t measured_samples() const override;

  // A class that has files of which none can be read, and why the first cannot.
  struct UnreadableClass {
    std::int32_t label = 0;
    std::string reason;  // "photos/train/cat/1.jpg: is empty"
  };
  // Reads one file of each class if all is well; reports none to BadSamples.
  std::vector<UnreadableClass> unreadable_classes(int threads) const;

 private:
  ImageFolder(const std::string& name, std::unique_ptr<PictureStore> pictures, const std::vector<std::string>& classes,
              const ImageFolderConfig& config, std::shared_ptr<BadSamples> bad);

  // The first sample from `index` on that can be read, by Pillow's arithmetic or as for training. Without `choose`, what is
  // shown without augmentation.
  std::int64_t read_picture(std::int64_t index, const RegionChooser* choose, bool exactly,
                            std::span<std::uint8_t> pixels) const;
  // The same in RGB.
  std::int64_t read_colours(std::int64_t index, const RegionChooser* choose, bool exactly,
                            std::span<std::uint8_t> pixels) const;
  // The same of this very image. Throws BadImage if it cannot be read.
  void read_one(std::int64_t index, const RegionChooser* choose, bool exactly, std::span<std::uint8_t> pixels) const;

  Preprocessing preprocessing_;
  std::unique_ptr<PictureStore> pictures_;
  std::shared_ptr<BadSamples> bad_;
  // Whether a file was found to be whole, so that later reads stop where their region ends.
  std::unique_ptr<std::atomic<bool>[]> verified_;
  std::unique_ptr<ImageCache> cache_;  // or null
  bool cache_is_exact_ = false;        // of what read() gives
};

}  // namespace ddp
