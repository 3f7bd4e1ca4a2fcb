// Options of data sets and augmentation.
#include <vector>

#include "options/table/topic_table.h"
#include "options/table/topics.h"

namespace ddp {
namespace {

void add_data(std::vector<OptionSpec>& table) {
  using D = DataOptions;
  TopicTable data(table, "data", &Options::data);
  data.text("dataset", &D::dataset, "NAME", "a data set name",
            "data set: glyphs (needs no files), mnist, fashion-mnist, cifar10, cifar100, idx (other files in MNIST's "
            "format), folder (images in DIR/{train,val}/CLASS or DIR/CLASS), synthetic");
  data.text("data-dir", &D::data_dir, "DIR", "a folder", "folder that contains the data sets");
  data.integer("workers", &D::workers, 0, 256, "loader threads per rank; 0: load synchronously within the step");
  data.integer("prefetch", &D::prefetch, 1, 1024, "batches loaded ahead per rank");
  data.integer("train-limit", &D::train_limit, 0, kNoLimit,
               "use only the first N training samples, of --dataset folder from all classes in turn; 0: all");
  data.integer("test-limit", &D::test_limit, 0, kNoLimit,
               "use only the first N test samples, of --dataset folder from all classes in turn; 0: all");
  data.choice("normalize", &D::normalize,
              "none: pixels in [0, 1]; standard: per-channel mean and standard deviation of the training set; "
              "imagenet: those of ImageNet");
  data.begin_group("--dataset folder, synthetic");
  data.sides("image-size", &D::image_size, 8, 2048, "resize images to N x N pixels, or to height x width");
  data.sides("eval-size", &D::eval_size, 8, 2048, "evaluate with larger images of this size").unset = "--image-size";
  data.choice("image-channels", &D::image_channels, "colour (3) or grey (1) images");
  data.begin_group("--dataset folder");
  data.text("labels", &D::labels, "FILE", "a file",
            "images with the labels of this list, in place of a folder per class: CSV or TSV with the columns path, "
            "label and "
            "possibly split and group, or lines of a path and a label");
  data.real("val-split", &D::val_split, {0, 1},
            "share of the images that evaluate if the folder has CLASS/ without train/ and val/; chosen by their "
            "content, so that "
            "copies of a picture stay together and added files move no other");
  data.text("fold", &D::fold, "K/N", "a fold such as 1/5",
            "evaluate on the K-th of N parts of the images instead; --sweep fold=1/5,2/5,... does all");
  data.text("split-group", &D::split_group, "regex:R|COLUMN", "regex: and a regular expression, or a column",
            "keep images on one side whose names have the same text in the first group of R, such as "
            "regex:patient_([0-9]+), or that have the same text in this column of --labels");
  data.choice("resize", &D::resize,
              "show the largest central rectangle of an image; all of it, distorted; or all, between black borders");
  data.real("eval-crop", &D::eval_crop, {0.01, 1}, "share of the sides that is cut out of the middle; timm's crop_pct")
      .unset = "0.875, or 1 without --resize crop";
  data.choice("interpolation", &D::interpolation, "Pillow's filter that resizes images");
  data.on_off("exif-orientation", &D::exif_orientation, "turn images as their EXIF data says; off: like torchvision");
  data.on_off("fast-decode", &D::fast_decode,
              "evaluate like training reads, with large images shrunk while they are decoded, instead of "
              "exactly as Pillow resizes them");
  data.integer("max-bad-samples", &D::max_bad_samples, 0, kNoLimit, "number of unreadable files to tolerate");
  data.text("image-cache", &D::image_cache, "DIR|off", "a folder or off", "cache decoded images in this folder");
}

void add_augmentation(std::vector<OptionSpec>& table) {
  using D = DataOptions;
  TopicTable augmentation(table, "augmentation", &Options::data);
  augmentation.on_off("random-resized-crop", &D::random_resized_crop,
                      "crop a random 8% to 100% of the area and resize it to full size");
  augmentation.integer("random-crop-padding", &D::random_crop_padding, 0, 4096,
                       "shift images randomly by up to N pixels; 0: off");
  OptionSpec& flip = augmentation.choice(
      "random-flip", &D::random_flip,
      "flip images horizontally; on: with probability 1/2; alternate: every image in every second epoch, "
      "beginning with a random half of them");
  flip.bare = "on";
  augmentation.ordinals("rand-augment", &D::rand_augment,
                        "N random operations per image with magnitude M from 0 to 30, as N,M");
  augmentation.on_off("trivial-augment", &D::trivial_augment, "one random operation per image with a random magnitude");
  augmentation.three_reals("color-jitter", &D::color_jitter, "B,C,S", {0, 10},
                           "scale brightness, contrast and saturation by random factors in [1-X, 1+X]");
  augmentation.integer(
      "repeat-augment", &D::repeat_augment, 1, 64,
      "have N copies of a sample in a global batch, each augmented in its own way; an epoch keeps its length");
  augmentation.integer("cutout", &D::cutout, 0, 4096, "erase a random square with sides of N pixels; 0: off");
  augmentation.real("random-erasing", &D::random_erasing, {0, 1},
                    "erase a random rectangle of 2% to 33% of the area, with this probability");
  augmentation.real("mixup", &D::mixup, {0, 100}, "mix pairs of samples with weights from Beta(X, X); 0: off");
  augmentation.real("cutmix", &D::cutmix, {0, 100},
                    "let pairs of samples exchange a rectangle whose share of the area is from Beta(X, X); 0: off; "
                    "with --mixup each pair does one of the two");
  OptionSpec& progressive = augmentation.sides(
      "progressive-size", &D::progressive_size, 8, 2048,
      "train with images of this size at first, which grow to the full size; evaluations always use the full size");
  progressive.unset = "the full size";
  augmentation.begin_group("--random-crop-padding");
  augmentation.choice("random-crop-fill", &D::random_crop_fill, "fill for the border that is uncovered");
  augmentation.begin_group("--mixup, --cutmix");
  augmentation.choice("mixup-per", &D::mixup_per, "draw for each sample or pair, or once for a whole batch");
  augmentation.begin_group("--progressive-size");
  augmentation.integer("progressive-begin", &D::progressive_begin, 0, 1'000'000, "epochs before images begin to grow");
  augmentation.integer("progressive-end", &D::progressive_end, 0, 1'000'000,
                       "epochs before images have the full size; required");
  augmentation.integer("progressive-stages", &D::progressive_stages, 2, 64,
                       "number of sizes, including the first and the full one; all but the last share the epochs "
                       "from --progressive-begin to --progressive-end equally");
}

}  // namespace

void add_data_options(std::vector<OptionSpec>& table) {
  add_data(table);
  add_augmentation(table);
}

}  // namespace ddp
