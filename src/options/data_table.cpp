#include "options/data_table.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "options/topic_table.h"

namespace ddp {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

}  // namespace

void add_data_options(std::vector<OptionSpec>& table) {
  TopicTable data(table, "data", &Options::data);
  data.text("dataset", &DataOptions::dataset, "NAME", "a data set name",
            "data set: glyphs (needs no files), mnist, fashion-mnist, cifar10, cifar100, idx (other files in MNIST's "
            "format), "
            "folder (images in DIR/{train,val}/CLASS), synthetic")
      .common = true;
  data.text("data-dir", &DataOptions::data_dir, "DIR", "a folder", "folder that contains the data sets").common = true;
  data.integer("workers", &DataOptions::workers, 0, 256,
               "loader threads per rank; 0: load synchronously within the step");
  data.integer("prefetch", &DataOptions::prefetch, 1, 1024, "batches loaded ahead per rank");
  data.integer("train-limit", &DataOptions::train_limit, 0, kNoLimit,
               "use only the first N training samples, of --dataset folder from all classes in turn; 0: all");
  data.integer("test-limit", &DataOptions::test_limit, 0, kNoLimit,
               "use only the first N test samples, of --dataset folder from all classes in turn; 0: all");
  data.choice("normalize", &DataOptions::normalize,
              "none: pixels in [0, 1]; standard: per-channel mean and standard deviation of the training set; "
              "imagenet: those of ImageNet");
  using D = DataOptions;
  data.on_off("random-resized-crop", &D::random_resized_crop,
              "augmentation: crop a random 8% to 100% of the area and resize it to full size");
  data.integer("random-crop-padding", &D::random_crop_padding, 0, 4096,
               "augmentation: shift images randomly by up to N pixels; 0: off");
  data.choice("random-crop-fill", &D::random_crop_fill, "fill for the border that --random-crop-padding uncovers");
  OptionSpec& flip = data.choice(
      "random-flip", &D::random_flip,
      "augmentation: flip images horizontally; on: with probability 1/2; alternate: every image in every second epoch, "
      "beginning with a random half of them");
  flip.bare = "on";
  data.ordinals("rand-augment", &D::rand_augment,
                "augmentation: N random operations per image with magnitude M from 0 to 30, as N,M");
  data.on_off("trivial-augment", &D::trivial_augment,
              "augmentation: one random operation per image with a random magnitude");
  data.three_reals("color-jitter", &D::color_jitter, "B,C,S", {0, 10},
                   "augmentation: scale brightness, contrast and saturation by random factors in [1-X, 1+X]");
  data.integer("cutout", &D::cutout, 0, 4096, "augmentation: erase a random square with sides of N pixels; 0: off");
  data.real("random-erasing", &D::random_erasing, {0, 1},
            "augmentation: erase a random rectangle of 2% to 33% of the area, with this probability");
  data.real("mixup", &D::mixup, {0, 100}, "augmentation: mix pairs of samples with weights from Beta(X, X); 0: off");
  data.real(
      "cutmix", &D::cutmix, {0, 100},
      "augmentation: let pairs of samples exchange a rectangle whose share of the area is from Beta(X, X); 0: off; "
      "with --mixup each pair does one of the two");
  data.choice("mixup-per", &D::mixup_per, "--mixup, --cutmix: draw for each sample or pair, or once for a whole batch");
  data.sides("image-size", &D::image_size, 8, 2048,
             "--dataset folder, synthetic: resize images to N x N pixels, or to height x width");
  OptionSpec& progressive = data.sides(
      "progressive-size", &D::progressive_size, 8, 2048,
      "train with images of this size at first, which grow to the full size; evaluations always use the full size");
  progressive.unset = "the full size";
  data.integer("progressive-begin", &D::progressive_begin, 0, 1'000'000,
               "--progressive-size: epochs before images begin to grow");
  data.integer("progressive-end", &D::progressive_end, 0, 1'000'000,
               "--progressive-size: epochs before images have the full size; required");
  data.integer(
      "progressive-stages", &D::progressive_stages, 2, 64,
      "--progressive-size: number of sizes, including the first and the full one; all but the last share the epochs "
      "from --progressive-begin to --progressive-end equally");
  data.choice("image-channels", &D::image_channels, "--dataset folder, synthetic: colour (3) or grey (1) images");
  data.on_off(
      "fast-decode", &D::fast_decode,
      "--dataset folder: evaluate like training reads, with large images shrunk while they are decoded, instead of "
      "exactly as Pillow resizes them");
  data.integer("max-bad-samples", &D::max_bad_samples, 0, kNoLimit,
               "--dataset folder: number of unreadable files to tolerate");
  data.text("image-cache", &D::image_cache, "DIR|off", "a folder or off",
            "--dataset folder: cache decoded images in this folder");
}

}  // namespace ddp
