#include "train/inputs/preprocessing.h"

#include <fmt/ranges.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "data/pipeline/normalization.h"
#include "options/defaults.h"
#include "train/inputs/fingerprint.h"

namespace ddp {
namespace {

Normalization normalization_of(const TrainingState& state) {
  Normalization normalization;
  for (const double mean : state.mean) normalization.mean.push_back(static_cast<float>(mean));
  for (const double deviation : state.deviation) normalization.deviation.push_back(static_cast<float>(deviation));
  return normalization;
}

double standard_crop(PictureResize resize) { return resize == PictureResize::crop ? Preprocessing{}.crop : 1; }

// The value of an option, or "".
std::string option_of(const Fingerprint& options, std::string_view name) {
  for (const FingerprintPart& part : options) {
    if (part.name == name) return part.value;
  }
  return "";
}

}  // namespace

Preprocessing preprocessing_of(const DataOptions& options, int defaults) {
  const bool exactly = reads_pictures_exactly(defaults);
  const ImageSides& sides = options.eval_size ? *options.eval_size : options.image_size;
  return {.shape = {options.image_channels == ImageChannels::grey ? 1 : 3, sides.height, sides.width},
          .resize = options.resize,
          .filter = options.interpolation,
          .crop = options.eval_crop ? *options.eval_crop : standard_crop(options.resize),
          .keeps_right_size = exactly,
          .exact = exactly && !options.fast_decode,
          .upright = options.exif_orientation && reads_all_pictures(defaults)};
}

Preprocessing preprocessing_of(const TrainingState& state) {
  const Fingerprint options = options_fingerprint(state.config);
  const auto has_option = [&](std::string_view name, std::string_view value) {
    return option_of(options, name) == value;
  };
  const bool exactly = reads_pictures_exactly(state.defaults);
  const PictureResize resize = has_option("--resize", "squash") ? PictureResize::squash
                               : has_option("--resize", "pad")  ? PictureResize::pad
                                                                : PictureResize::crop;
  // "unset", or nothing in older ones.
  const double crop = std::strtod(option_of(options, "--eval-crop").c_str(), nullptr);
  Preprocessing preprocessing{
      .resize = resize,
      .filter = has_option("--interpolation", "bicubic") ? Interpolation::bicubic : Interpolation::bilinear,
      .crop = crop > 0 ? crop : standard_crop(resize),
      .keeps_right_size = exactly,
      .exact = exactly && !has_option("--fast-decode", "on"),
      .upright = reads_all_pictures(state.defaults) && !has_option("--exif-orientation", "off"),
      .normalization = normalization_of(state)};
  if (state.image.size() == 3) preprocessing.shape = {state.image[0], state.image[1], state.image[2]};
  return preprocessing;
}

bool resizes_pictures(const std::string& dataset) { return dataset == "folder" || is_shard_format(dataset); }

Normalization choose_normalization(const DataOptions& options, const Dataset& train) {
  const auto channels = static_cast<std::size_t>(train.shape().channels);
  switch (options.normalize) {
    case NormalizeMode::none:
      break;
    case NormalizeMode::standard:
      return measure_normalization(train, train.measured_samples(), omp_get_max_threads());
    case NormalizeMode::imagenet:
      check(channels == 3, ExitCode::usage,
            "--normalize imagenet requires color images, but those of {} have {} channel; use --normalize standard",
            train.name(), channels);
      return imagenet_normalization();
  }
  return {std::vector<float>(channels, 0.0F), std::vector<float>(channels, 1.0F)};
}

Normalization evaluated_normalization(const Normalization& options, const TrainingState& state) {
  if (state.mean.empty()) return options;
  Normalization own = normalization_of(state);
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    constexpr float kRounding = 1e-5F;
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
             return std::abs(x - y) <= kRounding * std::max(1.0F, std::abs(y));
           });
  };
  if (same(options.mean, own.mean) && same(options.deviation, own.deviation)) return options;
  check(options.mean.size() == own.mean.size(), ExitCode::checkpoint,
        "the checkpoint is for images with {} channels, this data set has {}; use a --dataset and --data-dir with such "
        "images",
        own.mean.size(), options.mean.size());
  log_info("images are normalized as in the checkpoint: mean {:.4g}, standard deviation {:.4g}; --normalize is ignored",
           fmt::join(own.mean, ", "), fmt::join(own.deviation, ", "));
  return own;
}

}  // namespace ddp
