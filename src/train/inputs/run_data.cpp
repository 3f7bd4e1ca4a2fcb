#include "train/inputs/run_data.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text/utf8.h"
#include "train/inputs/preprocessing.h"

namespace ddp {
namespace {

RandAugment rand_augment_of(const DataOptions& options) {
  if (options.rand_augment.empty()) return {};
  return {.operations = options.rand_augment[0], .magnitude = options.rand_augment[1]};
}

Augmentation augmentation_of(const DataOptions& options, const Shape& image, const Normalization& normalization) {
  const bool reflects = options.random_crop_fill == CropFill::reflect;
  check(
      !reflects || 2 * options.random_crop_padding < std::min(image.height, image.width), ExitCode::usage,
      "--random-crop-fill reflect requires a --random-crop-padding below half the image size, but it is {} for images "
      "of {}x{}",
      options.random_crop_padding, image.height, image.width);
  Augmentation augmentation{.random_resized_crop = options.random_resized_crop,
                            .crop_padding = options.random_crop_padding,
                            .crop_reflects = reflects,
                            .flip = options.random_flip != FlipMode::off,
                            .flip_alternates = options.random_flip == FlipMode::alternate,
                            .rand_augment = rand_augment_of(options),
                            .trivial_augment = options.trivial_augment,
                            .color_jitter = options.color_jitter,
                            .cutout = options.cutout,
                            .erasing = options.random_erasing,
                            .fill = {}};
  for (const float mean : normalization.mean) {
    augmentation.fill.push_back(static_cast<std::uint8_t>(std::lround(255 * mean)));
  }
  return augmentation;
}

FolderOptions folder_of(const Job& job) {
  const DataOptions& data = job.options.data;
  const bool all_names = knows_all_folder_names(job.defaults);
  std::vector<std::string> classes;
  if (job.evaluates()) {
    for (const std::string& name : job.start.evaluated->classes) classes.push_back(unescape_bytes(name));
  }
  return {.preprocessing = preprocessing_of(data, job.defaults),
          .max_bad_samples = data.max_bad_samples,
          .image_cache = data.image_cache,
          .rules = {.valid_evaluates = all_names, .jfif_is_jpeg = all_names},
          .classes = std::move(classes)};
}

Normalization normalization_of(const Job& job, const DataSets& sets) {
  const std::optional<TrainingState>& evaluated = job.start.evaluated;
  const bool unmeasurable = sets.without_train && !evaluated->mean.empty();
  const Normalization normalization =
      unmeasurable ? preprocessing_of(*evaluated).normalization : choose_normalization(job.options.data, *sets.train);
  return evaluated ? evaluated_normalization(normalization, *evaluated) : normalization;
}

}  // namespace

RunData open_data(const Job& job) {
  const DataOptions& data = job.options.data;
  const FolderOptions folder = folder_of(job);
  DataSets sets =
      job.start.data == DataUse::sample
          ? open_sample(data.dataset, data.data_dir, data.train_limit, omp_get_max_threads(), folder)
          : open_dataset(data.dataset, data.data_dir, data.train_limit, data.test_limit, omp_get_max_threads(), folder);
  RunData opened{.sets = std::move(sets), .preprocessing = folder.preprocessing};
  std::unique_ptr<Dataset>& train = opened.sets.train;
  opened.preprocessing.shape = train->shape();
  opened.preprocessing.normalization = normalization_of(job, opened.sets);
  const Augmentation augmentation = augmentation_of(data, train->shape(), opened.preprocessing.normalization);
  // A GPU edits images while it reads them. Threads that mix images augment them before.
  const bool only_edits = augmentation.only_edits() && !mixes(data);
  opened.keeps_images = only_edits && train->fixed();
  if (augmentation.any() && only_edits && job.on_gpu()) opened.edits = augmentation;
  if (augmentation.any()) train = std::make_unique<AugmentedDataset>(std::move(train), augmentation);
  return opened;
}

}  // namespace ddp
