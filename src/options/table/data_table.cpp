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
            "format), folder (images in DIR/{train,val}/CLASS or DIR/CLASS), webdataset, tfrecord (shards), synthetic");
  data.text("data-dir", &D::data_dir, "DIR", "a folder",
            "folder that contains the data sets, or the shards that train: 'train-{0000..0127}.tar' or a folder");
  data.integer("workers", &D::workers, 0, 256, "loader threads per rank; 0: none");
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
            "images with their labels in a list: CSV or TSV with the columns path, label and possibly split and group, "
            "or lines of both");
  data.real("val-split", &D::val_split, {0, 1},
            "share of the images that evaluate if there is CLASS/ without train/ and val/, chosen by their content");
  data.text("fold", &D::fold, "K/N", "a fold such as 1/5",
            "evaluate on the K-th of N parts of the images instead; --sweep fold=1/5,2/5,... does all");
  data.text("split-group", &D::split_group, "regex:R|COLUMN", "regex: and a regular expression, or a column",
            "keep images on one side whose names have the same text in the first group of R, or that have the same "
            "text in this column of --labels");
  data.text("image-cache", &D::image_cache, "DIR|off", "a folder or off", "cache decoded images in this folder");
  data.begin_group("--dataset folder, webdataset, tfrecord");
  data.choice("resize", &D::resize,
              "show the largest central rectangle of an image; all of it, distorted; or all, between black borders");
  data.real("eval-crop", &D::eval_crop, {0.01, 1}, "share of the sides that is cut out of the middle; timm's crop_pct")
      .unset = "0.875, or 1 without --resize crop";
  data.choice("interpolation", &D::interpolation, "Pillow's filter that resizes images");
  data.on_off("exif-orientation", &D::exif_orientation, "turn images as their EXIF data says; off: like torchvision");
  data.on_off("fast-decode", &D::fast_decode,
              "evaluate like training reads: large images shrink while they are decoded");
  data.integer("max-bad-samples", &D::max_bad_samples, 0, kNoLimit, "number of unreadable files to tolerate");
  data.begin_group("--dataset webdataset, tfrecord");
  data.text("val-dir", &D::val_dir, "SHARDS", "shards or a folder", "the shards that evaluate, as --data-dir");
  data.text("image-key", &D::image_key, "KEY", "a key",
            "field or feature with the picture, where it has no usual name");
  data.text("label-key", &D::label_key, "KEY", "a key", "field or feature with the label");
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
