#include "train/inputs/run_data.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text/text.h"
#include "base/text/utf8.h"
#include "data/index/labels.h"
#include "data/index/split.h"
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

FolderRules rules_of(const Job& job) {
  const bool all_names = knows_all_folder_names(job.defaults);
  return {.valid_evaluates = all_names, .jfif_is_jpeg = all_names, .all_formats = reads_all_pictures(job.defaults)};
}

constexpr std::string_view kExpression = "regex:";

bool groups_by_name(const DataOptions& data) { return data.split_group.starts_with(kExpression); }

// The column of --labels that has the groups.
std::string group_column_of(const DataOptions& data) { return groups_by_name(data) ? "" : data.split_group; }

SplitRule split_rule_of(const DataOptions& data) {
  return {.share = data.val_split,
          .fold = parse_fold(data.fold),
          .group = groups_by_name(data) ? data.split_group.substr(kExpression.size()) : ""};
}

// Options that would be ignored; a complete configuration gives them, too. `divided`: what says which images evaluate.
void check_divisible(const Job& job, const std::string& divided) {
  const DataOptions& data = job.options.data;
  const DataOptions standard;
  const std::initializer_list<std::pair<const char*, bool>> differs = {
      {"val-split", data.val_split != standard.val_split},
      {"fold", !data.fold.empty()},
      {"split-group", !data.split_group.empty()}};
  for (const auto& [key, set] : differs) {
    check(!set || !job.options.given.has(key), ExitCode::usage,
          "--{} divides the images of --dataset folder in CLASS/ or train/CLASS/, or of a list, but {}; remove it", key,
          divided);
  }
}

// The images that are to be divided, or the reason why there are none.
struct Undivided {
  LabelList list;
  std::string reason;
};

Undivided undivided_images(const Job& job) {
  const DataOptions& data = job.options.data;
  if (data.dataset != "folder") return {{}, fmt::format("--dataset {} has test images of its own", data.dataset)};
  if (!data.labels.empty()) {
    LabelList list = read_labels(data.labels, data.data_dir, group_column_of(data), omp_get_max_threads());
    std::string reason = list.parts.empty() ? "" : fmt::format("{} has a column split", data.labels);
    return {std::move(list), std::move(reason)};
  }
  const std::filesystem::path folder = undivided_folder(data.data_dir, rules_of(job));
  if (folder.empty()) {
    return {{}, fmt::format("{} has images in folders of their own for evaluation, or none", data.data_dir)};
  }
  return {{.listing = list_undivided_folder(folder, rules_of(job)), .parts = {}, .groups = {}}, ""};
}

void check_same_split(const std::filesystem::path& stored, const std::string& now) {
  std::error_code error;
  if (stored.empty() || !std::filesystem::exists(stored, error)) return;
  const std::string difference = split_difference(read_text(stored, ExitCode::checkpoint), now);
  check(difference.empty(), ExitCode::checkpoint,
        "the images are not divided as in {}: {}; use the images and options that the run was created with, or put "
        "images to evaluate in a folder of their own, DIR/val/CLASS",
        stored.string(), difference);
}

// The classes of the checkpoint that is evaluated, in any bytes.
std::vector<std::string> evaluated_classes(const Job& job) {
  std::vector<std::string> classes;
  if (job.evaluates()) {
    for (const std::string& name : job.start.evaluated->classes) classes.push_back(unescape_bytes(name));
  }
  return classes;
}

ShardSettings shards_of(const Job& job) {
  const DataOptions& data = job.options.data;
  return {.format = data.dataset,
          .train = data.data_dir,
          .test = data.val_dir,
          .image_key = data.image_key,
          .label_key = data.label_key,
          .classes = evaluated_classes(job)};
}

// Options of shards that would be ignored.
void check_shard_options(const Job& job) {
  const DataOptions& data = job.options.data;
  const bool shards = is_shard_format(data.dataset);
  const std::initializer_list<std::pair<const char*, bool>> only_shards = {{"val-dir", !data.val_dir.empty()},
                                                                           {"image-key", !data.image_key.empty()},
                                                                           {"label-key", !data.label_key.empty()}};
  for (const auto& [key, set] : only_shards) {
    check(shards || !set, ExitCode::usage, "--{} applies to --dataset {} only; remove it", key,
          join(shard_formats(), " and "));
  }
  check(!shards || data.image_cache == "off", ExitCode::usage,
        "--image-cache stores the pictures of --dataset folder, not of shards; remove it");
  check(!shards || data.labels.empty(), ExitCode::usage,
        "--labels names files of --dataset folder, and shards have labels of their own; remove it");
}

FolderOptions folder_of(const Job& job, const FolderDivision& division) {
  const DataOptions& data = job.options.data;
  return {.preprocessing = preprocessing_of(data, job.defaults),
          .max_bad_samples = data.max_bad_samples,
          .image_cache = data.image_cache,
          .rules = rules_of(job),
          .classes = evaluated_classes(job),
          .labels = data.labels,
          .group_column = group_column_of(data),
          .parts = division.parts,
          .split = division.rule,
          .shards = shards_of(job),
          .indexes = division.indexes,
          .looks_for_copies = !job.evaluates() && job.start.data == DataUse::all};
}

Normalization normalization_of(const Job& job, const DataSets& sets) {
  const std::optional<TrainingState>& evaluated = job.start.evaluated;
  const bool unmeasurable = sets.without_train && !evaluated->mean.empty();
  const Normalization normalization =
      unmeasurable ? preprocessing_of(*evaluated).normalization : choose_normalization(job.options.data, *sets.train);
  return evaluated ? evaluated_normalization(normalization, *evaluated) : normalization;
}

}  // namespace

FolderDivision divide_folder(const Job& job) {
  const DataOptions& data = job.options.data;
  check_shard_options(job);
  if (is_shard_format(data.dataset)) {
    check_divisible(job, fmt::format("--dataset {} has shards of its own for evaluation, --val-dir", data.dataset));
    const std::filesystem::path folder = cache_directory("indexes").value_or("");
    return {.indexes = index_shards(shards_of(job), {.folder = folder, .threads = omp_get_max_threads()})};
  }
  const Undivided undivided = undivided_images(job);
  if (!undivided.reason.empty()) check_divisible(job, undivided.reason);
  const FolderListing& listing = undivided.list.listing;
  if (listing.train.files.empty()) return {};
  FolderDivision division{.parts = undivided.list.parts, .rule = {}, .csv = {}};
  if (!division.parts.empty()) {
    division.rule = fmt::format("the column split of {}", data.labels);
  } else {
    SplitRule rule = split_rule_of(data);
    const std::vector<std::string>& groups = undivided.list.groups;
    if (rule.group.empty() && !groups.empty()) rule.column = data.split_group.empty() ? "group" : data.split_group;
    const std::vector<std::uint64_t> keys = !rule.column.empty()  ? group_keys(groups)
                                            : !rule.group.empty() ? group_keys(listing.train, rule.group)
                                                                  : content_keys(listing.train, omp_get_max_threads());
    division.parts = choose_parts(listing, keys, rule);
    division.rule = rule.text();
  }
  division.csv = split_csv(listing, division.parts);
  check_same_split(job.start.split, division.csv);
  return division;
}

RunData open_data(const Job& job, const FolderDivision& division) {
  const DataOptions& data = job.options.data;
  const FolderOptions folder = folder_of(job, division);
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
