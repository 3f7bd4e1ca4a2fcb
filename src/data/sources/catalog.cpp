#include "data/sources/catalog.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text/text.h"
#include "base/text/utf8.h"
#include "data/formats/formats.h"
#include "data/index/bad_samples.h"
#include "data/index/folder_listing.h"
#include "data/index/labels.h"
#include "data/index/split.h"
#include "data/sources/cifar.h"
#include "data/sources/glyphs.h"
#include "data/sources/idx.h"
#include "data/sources/image_folder.h"
#include "data/sources/memory_dataset.h"
#include "data/sources/synthetic.h"

namespace ddp {
namespace {

struct Request {
  std::string name;
  std::filesystem::path data_dir;
  std::int64_t train_limit;
  std::int64_t test_limit;
  int threads;
  const FolderOptions& folder;
};

DataSets open_glyphs(const Request& request) {
  return {make_glyphs(Split::train, request.train_limit, request.threads),
          make_glyphs(Split::test, request.test_limit, request.threads)};
}

// Opens both splits with open(source).
template <class Source, class Open>
DataSets open_splits(Source source, const Request& request, Open open) {
  DataSets data;
  source.split = Split::train;
  source.limit = request.train_limit;
  data.train = open(source);
  source.split = Split::test;
  source.limit = request.test_limit;
  data.test = open(source);
  return data;
}

DataSets open_idx_pair(const Request& request) {
  IdxSource source;
  source.name = request.name;
  source.folders = {request.data_dir / request.name, request.data_dir};
  return open_splits(source, request, [](const IdxSource& split) { return open_idx(split); });
}

DataSets open_any_idx(const Request& request) {
  IdxSource source;
  source.name = request.name;
  source.published = false;
  source.folders = {request.data_dir};
  return open_splits(source, request, [](const IdxSource& split) { return open_idx(split); });
}

DataSets open_cifar_pair(const Request& request) {
  const std::filesystem::path& dir = request.data_dir;
  CifarSource source;
  source.classes = request.name == "cifar100" ? 100 : 10;
  const char* unpacked = source.classes == 100 ? "cifar-100-binary" : "cifar-10-batches-bin";
  source.folders = {dir / unpacked, dir / request.name / unpacked, dir / request.name, dir};
  source.data_dir = dir;
  return open_splits(source, request, [](const CifarSource& split) { return open_cifar(split); });
}

// Once for all ranks.
void warn(const std::string& text) {
  if (log_rank() == 0) log_warning("{}", text);
}

// Files of a format that this build cannot read would all count as damaged.
void check_formats(const FolderListing& listing) {
  for (const FolderSplit* split : {&listing.train, &listing.test}) {
    for (const ListedFile& file : split->files) {
      const MissingLibrary missing = missing_library(suffix_of(file.name));
      check(missing.library.empty(), ExitCode::data,
            "{}: this program was built without {}; install it with launch/setup{} and build again, or convert the {} "
            "files to PNG",
            escape_name((split->folder / file.name).string()), missing.library, missing.option, missing.format);
    }
  }
}

std::string all_passed_over(const FolderListing& listing) {
  PassedOver all = listing.train.passed_over;
  for (const auto& [kind, count] : listing.test.passed_over) all[kind] += count;
  return all.empty() ? "" : passed_over_text(all);
}

// What the names of the files tell before any of them is opened.
void check_files(const FolderListing& listing, const FolderRules& rules, BadSamples& bad) {
  for (const FolderSplit* split : {&listing.train, &listing.test}) {
    if (!split->passed_over.empty()) {
      log_info("{}: skipped {}; the names of images end in {}", escape_name(split->folder.string()),
               passed_over_text(split->passed_over), image_suffixes(rules));
    }
    for (const SpecialFile& file : split->special) {
      bad.report(file.path.string(), fmt::format("is not a regular file but {}", file.kind));
    }
  }
  check_formats(listing);
  for (const std::string& warning : listing.warnings) warn(warning);
}

// A network recognises what it has seen. More images than these are not compared, as each must be looked at.
void warn_of_copies(const FolderListing& listing, int threads) {
  constexpr std::size_t kMostCompared = 200'000;
  // Once for all ranks.
  if (log_rank() != 0 || listing.train.files.size() + listing.test.files.size() > kMostCompared) return;
  const Copies copies = find_copies(listing, threads);
  if (copies.count == 0) return;
  log_warning(
      "{} of the {} images that evaluate {} also among those that train ({}{}), so that the accuracy is too high",
      copies.count, listing.test.files.size(), copies.count == 1 ? "is" : "are", join(copies.first),
      copies.count > static_cast<std::int64_t>(copies.first.size()) ? ", ..." : "");
}

// The other classes would stand in for such a class.
void check_train_classes(const ImageFolder& train, const FolderListing& listing, int threads) {
  const std::vector<ImageFolder::UnreadableClass> unreadable = train.unreadable_classes(threads);
  if (unreadable.empty()) return;
  const std::string& name = listing.classes[static_cast<std::size_t>(unreadable.front().label)];
  throw Error(ExitCode::data,
              fmt::format("{}: no image of the class can be read{} ({}); repair them, or remove the folder",
                          escape_name((listing.train.folder / name).string()),
                          unreadable.size() == 1 ? "" : fmt::format(", nor of {} other classes", unreadable.size() - 1),
                          unreadable.front().reason));
}

// Evaluation is without these classes.
void leave_out(const std::vector<ImageFolder::UnreadableClass>& unreadable, FolderListing& listing) {
  std::vector<std::string> names;
  for (const auto& [label, reason] : unreadable) {
    std::erase_if(listing.test.files, [label = label](const ListedFile& file) { return file.label == label; });
    if (names.size() < 6) names.push_back(escape_name(listing.classes[static_cast<std::size_t>(label)]));
  }
  const std::string folder = escape_name(listing.test.folder.string());
  check(!listing.test.files.empty(), ExitCode::data, "{}: no image can be read; repair them", folder);
  warn(fmt::format("{}: no image of {} of the {} classes can be read ({}{}; {}): evaluation leaves {} out", folder,
                   unreadable.size(), listing.classes.size(), join(names),
                   names.size() < unreadable.size() ? ", ..." : "", unreadable.front().reason,
                   unreadable.size() == 1 ? "it" : "them"));
}

std::string evaluation_text(const FolderListing& listing) {
  std::string folder = listing.test.folder.filename().string();
  if (listing.unused.empty()) return folder;
  return fmt::format("{} ({} {} not read)", folder, join(listing.unused), listing.unused.size() == 1 ? "is" : "are");
}

// "photos, 10 % of the images, chosen by their content (88 cat, 12 dog)"
std::string divided_text(const FolderListing& listing, const std::string& split) {
  constexpr std::size_t kShownClasses = 6;
  std::vector<std::int64_t> counts(listing.classes.size());
  for (const ListedFile& file : listing.test.files) ++counts[static_cast<std::size_t>(file.label)];
  std::vector<std::string> texts;
  for (std::size_t label = 0; label < std::min(counts.size(), kShownClasses); ++label) {
    texts.push_back(fmt::format("{} {}", counts[label], escape_name(listing.classes[label])));
  }
  if (counts.size() > kShownClasses) texts.emplace_back("...");
  return fmt::format("{} ({})", split, join(texts));
}

FolderListing list_folder(const Request& request, bool without_train) {
  const FolderOptions& options = request.folder;
  if (without_train) return list_evaluation_folder(request.data_dir, options.classes, options.rules);
  if (options.parts.empty()) return list_image_folder(request.data_dir, options.rules);
  FolderListing listing =
      options.labels.empty()
          ? list_undivided_folder(undivided_folder(request.data_dir, options.rules), options.rules)
          : read_labels(options.labels, request.data_dir, options.group_column, request.threads).listing;
  divide(listing, options.parts);
  return listing;
}

DataSets open_folder(const Request& request) {
  std::error_code error;
  const bool divided = !request.folder.parts.empty();
  const bool without_train =
      !divided && !request.folder.classes.empty() && !std::filesystem::is_directory(request.data_dir / "train", error);
  FolderListing listing = list_folder(request, without_train);
  const auto bad = std::make_shared<BadSamples>(request.folder.max_bad_samples);
  check_files(listing, request.folder.rules, *bad);
  if (request.folder.looks_for_copies && !divided) warn_of_copies(listing, request.threads);
  ImageFolderConfig config{.preprocessing = request.folder.preprocessing,
                           .limit = request.train_limit,
                           .cache = request.folder.image_cache == "off" ? "" : request.folder.image_cache,
                           .threads = request.threads};
  DataSets data;
  auto train =
      std::make_unique<ImageFolder>(without_train ? listing.test : listing.train, listing.classes, config, bad);
  config.limit = request.test_limit;
  config.evaluated = true;
  auto test = std::make_unique<ImageFolder>(listing.test, listing.classes, config, bad);
  if (request.folder.max_bad_samples > 0) {
    if (!without_train) check_train_classes(*train, listing, request.threads);
    const std::vector<ImageFolder::UnreadableClass> unreadable = test->unreadable_classes(request.threads);
    if (!unreadable.empty()) {
      leave_out(unreadable, listing);
      test = std::make_unique<ImageFolder>(listing.test, listing.classes, config, bad);
    }
  }
  data.train = std::move(train);
  data.test = std::move(test);
  data.evaluation = divided ? divided_text(listing, request.folder.split) : evaluation_text(listing);
  data.passed_over = all_passed_over(listing);
  data.without_train = without_train;
  return data;
}

DataSets open_records(const Request& request) {
  const FolderOptions& options = request.folder;
  const auto bad = std::make_shared<BadSamples>(options.max_bad_samples);
  return open_shards(options.shards, options.indexes, {.preprocessing = options.preprocessing}, request.train_limit,
                     request.test_limit, bad);
}

DataSets open_synthetic(const Request& request) {
  const Shape shape = request.folder.preprocessing.shape;
  return {make_synthetic(Split::train, {.shape = shape, .limit = request.train_limit}),
          make_synthetic(Split::test, {.shape = shape, .limit = request.test_limit})};
}

struct Entry {
  const char* name;
  DataSets (*open)(const Request&);
  // For data sets in files with a fixed shape; otherwise {}.
  Shape shape = {};
  int classes = 10;
};

std::unique_ptr<Dataset> random_pixels(const Entry& entry, std::int64_t samples) {
  constexpr std::uint32_t kKey = 4;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(samples) * entry.shape.size());
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<std::uint8_t>(philox({static_cast<std::uint32_t>(i), 0, 0, 0}, {kKey, 0})[0]);
  }
  std::vector<std::uint8_t> labels(static_cast<std::size_t>(samples));
  for (std::size_t i = 0; i < labels.size(); ++i)
    labels[i] = static_cast<std::uint8_t>(i % static_cast<std::size_t>(entry.classes));
  return std::make_unique<MemoryDataset>(entry.name, entry.shape, entry.classes, std::move(pixels), std::move(labels));
}

constexpr std::array kEntries = {
    Entry{"glyphs", open_glyphs},
    Entry{"mnist", open_idx_pair, {1, 28, 28}},
    Entry{"fashion-mnist", open_idx_pair, {1, 28, 28}},
    Entry{"cifar10", open_cifar_pair, {3, 32, 32}},
    Entry{"cifar100", open_cifar_pair, {3, 32, 32}, 100},
    Entry{"idx", open_any_idx},
    Entry{"folder", open_folder},
    Entry{"webdataset", open_records},
    Entry{"tfrecord", open_records},
    Entry{"synthetic", open_synthetic},
};

}  // namespace

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  names.reserve(kEntries.size());
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

DataSets open_dataset(const std::string& name, const std::string& data_dir, std::int64_t train_limit,
                      std::int64_t test_limit, int threads, const FolderOptions& folder) {
  check(train_limit >= 0, ExitCode::usage, "--train-limit is {}; give 0 for all samples, or a number of them",
        train_limit);
  check(test_limit >= 0, ExitCode::usage, "--test-limit is {}; give 0 for all samples, or a number of them",
        test_limit);
  for (const Entry& entry : kEntries) {
    if (name == entry.name) return entry.open({name, data_dir, train_limit, test_limit, threads, folder});
  }
  const std::vector<std::string> names = dataset_names();
  const std::string near = nearest(name, names);
  throw Error(ExitCode::usage,
              fmt::format("unknown data set '{}'{}; available: {}", name,
                          near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near), join(names)));
}

DataSets open_sample(const std::string& name, const std::string& data_dir, std::int64_t samples, int threads,
                     const FolderOptions& folder) {
  try {
    return open_dataset(name, data_dir, samples, 1, threads, folder);
  } catch (const Error& unreadable) {
    const auto* const entry =
        std::find_if(kEntries.begin(), kEntries.end(), [&](const Entry& each) { return name == each.name; });
    if (unreadable.code() != ExitCode::data || entry == kEntries.end() || entry->shape.size() == 0) throw;
    log_info("random pixels of {}x{}x{} replace the images ({})", entry->shape.channels, entry->shape.height,
             entry->shape.width, unreadable.what());
    return {random_pixels(*entry, samples), random_pixels(*entry, 1)};
  }
}

}  // namespace ddp
