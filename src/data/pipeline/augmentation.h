// Augmentation: random changes of training images.
//
//   auto train = std::make_unique<AugmentedDataset>(std::move(data.train), augmentation);
//   train->read_training(17, key, pixels);   // a function of (17, key) alone
//   train->read(17, pixels);                 // unaugmented
//
// Each augmentation draws from its own random stream, so that enabling one does not affect the others. They are applied
// to bytes in the order of the members below; each rounds to nearest.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/types/image_edit.h"
#include "data/pipeline/auto_augment.h"
#include "data/pipeline/mixup.h"
#include "data/sources/dataset.h"

namespace ddp {

struct Augmentation {
  // A region with 8% to 100% of the area and an aspect ratio of 3/4 to 4/3, resized to the full size (Szegedy et al.,
  // "Going deeper with convolutions", 2015; distributed as in torchvision's RandomResizedCrop).
  bool random_resized_crop = false;
  // Shifted by up to this many pixels in each direction; the uncovered border is black (torchvision's RandomCrop with
  // padding).
  std::int64_t crop_padding = 0;
  // The uncovered border is filled by reflection (padding_mode="reflect"); the padding is less than half of the image.
  bool crop_reflects = false;
  // Mirrored horizontally with probability 1/2.
  bool flip = false;
  // With flip: in every second epoch, by the keys of alternating_key() (K. Jordan: "94% on CIFAR-10 in 3.29 Seconds on a
  // Single GPU", 2024).
  bool flip_alternates = false;
  // Random operations (auto_augment.h), RandAugment's before TrivialAugment's.
  RandAugment rand_augment = {};
  bool trivial_augment = false;
  // Brightness, contrast and saturation times a factor from 1-x to 1+x, in random order (torchvision's ColorJitter).
  // Grey images have no saturation.
  std::array<double, 3> color_jitter = {0, 0, 0};
  // A square of this side at a random centre is filled with `fill` (DeVries, Taylor: "Improved Regularization of
  // Convolutional Neural Networks with Cutout", 2017).
  std::int64_t cutout = 0;
  // With this probability a rectangle of 2% to 33% of the area and an aspect ratio of 0.3 to 3.3 is filled with `fill`
  // (Zhong et al.: "Random Erasing Data Augmentation", 2017; distributed as in torchvision's RandomErasing).
  double erasing = 0;
  std::vector<std::uint8_t> fill;  // per channel; the mean, which normalization makes zero

  bool any() const {
    return random_resized_crop || crop_padding > 0 || flip || cutout > 0 || erasing > 0 ||
           rand_augment.operations > 0 || trivial_augment || color_jitter != std::array<double, 3>{0, 0, 0};
  }
  // Whether all that it does to a stored image is what edit_of() says.
  bool only_edits() const {
    return !random_resized_crop && rand_augment.operations == 0 && !trivial_augment &&
           color_jitter == std::array<double, 3>{0, 0, 0};
  }
};

// How much an image is shifted, whether it is mirrored and what is filled (cutout, erasing), for a key.
ImageEdit edit_of(const Augmentation& augmentation, const Shape& shape, std::uint64_t key);

// The region that random_resized_crop selects for a key.
Region random_region(const ImageSize& size, std::uint64_t key);

// The rectangle that random erasing fills for a key; empty if it leaves the image as it is.
Rectangle erased_rectangle(double probability, const Shape& shape, std::uint64_t key);

// The factors of a colour jitter, and the order in which they are applied: 0 brightness, 1 contrast, 2 saturation.
struct JitterDraw {
  std::array<double, 3> factors = {1, 1, 1};
  std::array<std::uint32_t, 3> order = {0, 1, 2};
};
JitterDraw draw_jitter(const std::array<double, 3>& strength, std::uint64_t key);

// On planes [shape.channels][height][width], one or three of them, in place.
void apply_jitter(const JitterDraw& draw, const Shape& shape, std::span<std::uint8_t> pixels);
void mirror(const Shape& shape, std::span<std::uint8_t> pixels);
// Shifts the image by (right, down); the uncovered border is black.
void move_image(const Shape& shape, std::int64_t right, std::int64_t down, std::span<std::uint8_t> pixels);
// After move_image(): fills the uncovered border by reflection, without repeating the edge. |right| and |down| are less
// than half of the image.
void reflect_borders(const Shape& shape, std::int64_t right, std::int64_t down, std::span<std::uint8_t> pixels);
// Fills the square of `side` around (x, y), clipped to the image, with `fill`.
void paint_square(const Shape& shape, std::int64_t x, std::int64_t y, std::int64_t side,
                  std::span<const std::uint8_t> fill, std::span<std::uint8_t> pixels);

// Fills a rectangle of the image with `fill`.
void paint(const Shape& shape, const Rectangle& area, std::span<const std::uint8_t> fill,
           std::span<std::uint8_t> pixels);

// A data set whose images are augmented when read for training.
class AugmentedDataset : public Dataset {
 public:
  AugmentedDataset(std::unique_ptr<Dataset> plain, Augmentation augmentation);

  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override;
  std::int64_t read_plain(std::int64_t index, std::span<std::uint8_t> pixels) const override;
  std::int64_t read_region(std::int64_t index, const RegionChooser& choose,
                           std::span<std::uint8_t> pixels) const override;
  std::int64_t read_training(std::int64_t index, std::uint64_t key, std::span<std::uint8_t> pixels) const override;
  int label(std::int64_t index) const override { return plain_->label(index); }
  std::string file(std::int64_t index) const override { return plain_->file(index); }
  bool load(std::int64_t index, ImageDecoder& decoder) const override { return plain_->load(index, decoder); }
  bool fixed() const override { return plain_->fixed() && !augmentation_.any(); }

 private:
  std::unique_ptr<Dataset> plain_;
  Augmentation augmentation_;
};

}  // namespace ddp
