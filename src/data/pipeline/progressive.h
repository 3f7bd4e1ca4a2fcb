// Progressive image size: training begins with small images, which are cheap, and ends with those of the full size.
//
//   const ProgressiveSizes sizes({.height = 128, .width = 128, .begin = 0, .end = 12, .stages = 4}, {3, 224, 224});
//   sizes.shapes();       // 128, 160, 192 and 224 pixels
//   sizes.at_epoch(4);    // 1: images of 160 pixels from the fifth epoch on
//   ResizedDataset smaller(*data.train, sizes.shapes()[1]);
//
// The size is a function of the epoch alone. Images are augmented at their full size, then resized, so that every option of
// the augmentation has the same meaning for all sizes (progressive resizing: J. Howard, fast.ai's entry to DAWNBench, 2018;
// M. Tan, Q. Le: "EfficientNetV2: Smaller Models and Faster Training", 2021, there with other augmentation as well).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "data/sources/dataset.h"

namespace ddp {

struct ProgressiveConfig {
  std::int64_t height = 0;  // of the first images
  std::int64_t width = 0;
  std::int64_t begin = 0;   // epochs, from 0: from `begin` to `end` all sizes but the last have the same time
  std::int64_t end = 0;     // the first epoch with images of the full size
  std::int64_t stages = 2;  // sizes, with the first and the full one
};

class ProgressiveSizes {
 public:
  // Only the full size.
  explicit ProgressiveSizes(const Shape& full = {}) : shapes_({full}), first_epochs_({0}) {}
  // Throws Error(usage) if the first size is not below the full one, or if there are more sizes than epochs for them.
  ProgressiveSizes(const ProgressiveConfig& config, const Shape& full);

  // One size for all epochs of training, and the full one for evaluations.
  ProgressiveSizes(const Shape& trained, const Shape& full) : shapes_({trained, full}), first_epochs_({0, kNever}) {}

  bool larger_in_evaluations() const { return first_epochs_.back() == kNever; }
  // In the order of training; the last is the full size.
  const std::vector<Shape>& shapes() const { return shapes_; }
  // The index of an epoch's shape; epochs count from 0.
  std::size_t at_epoch(std::int64_t epoch) const;
  // For how many epochs from this one on images have its size; 0: for all.
  std::int64_t epochs_from(std::int64_t epoch) const;
  // "128x128, from epoch 5 on 160x160, from epoch 9 on 224x224"; displayed epochs count from 1.
  std::string text() const;

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  std::vector<Shape> shapes_;
  std::vector<std::int64_t> first_epochs_;
};

// The images of another data set, which must outlive this one, resized as Pillow does (data/images/resample.h).
class ResizedDataset : public Dataset {
 public:
  // `shape` has the channels of the other set.
  ResizedDataset(const Dataset& full, const Shape& shape);

  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override;
  std::int64_t read_plain(std::int64_t index, std::span<std::uint8_t> pixels) const override;
  std::int64_t read_training(std::int64_t index, std::uint64_t key, std::span<std::uint8_t> pixels) const override;
  int label(std::int64_t index) const override { return full_.label(index); }
  std::string file(std::int64_t index) const override { return full_.file(index); }
  // Resizing is no copy.
  bool fixed() const override { return false; }

 private:
  const Dataset& full_;
};

}  // namespace ddp
