#include "data/sources/shard_sets.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/text/text.h"
#include "base/text/utf8.h"
#include "data/index/class_order.h"
#include "data/shards/shard_names.h"
#include "data/shards/tfrecord.h"
#include "data/shards/webdataset.h"

namespace ddp {
namespace {

struct NamedFormat {
  const char* name;
  ShardFormat (*make)(const ShardSettings&);
};

constexpr std::array kFormats = {
    NamedFormat{"webdataset",
                [](const ShardSettings& s) {
                  return webdataset_format({s.image_key, s.label_key});
                }},
    NamedFormat{"tfrecord",
                [](const ShardSettings& s) {
                  return tfrecord_format({s.image_key, s.label_key});
                }},
};

RecordIndex parsed(const std::string& text) {
  std::optional<RecordIndex> index = parse_index(text);
  DDP_ASSERT(index.has_value());
  return *std::move(index);
}

// Reports what is damaged, and gives each record the number of its class.
void settle(RecordIndex& index, const std::vector<std::string>& classes, const std::string& missing, BadSamples& bad) {
  for (const DamagedRecord& damage : index.damaged) {
    const std::filesystem::path& path = index.shards[static_cast<std::size_t>(damage.shard)].path;
    bad.report(fmt::format("{}: offset {}", path.string(), damage.offset), damage.reason);
  }
  const std::string first = escape_name(index.shards.front().path.string());
  check(!index.records.empty(), ExitCode::data, "{}: has no sample with a picture and a label{}", first,
        index.shards.size() > 1 ? fmt::format(", nor have the other {} shards", index.shards.size() - 1) : "");
  std::unordered_map<std::string, std::int32_t> numbers;
  for (std::size_t i = 0; i < classes.size(); ++i) numbers.emplace(classes[i], static_cast<std::int32_t>(i));
  // Numbers count the names of the classes, from 0, unless some of these are numbers themselves.
  const bool named = std::any_of(index.labels.begin(), index.labels.end(),
                                 [&](const std::string& label) { return numbers.contains(label); });
  std::vector<std::int32_t> class_of;
  for (const std::string& label : index.labels) {
    const auto found = numbers.find(label);
    const std::int64_t number =
        named ? (found == numbers.end() ? -1 : found->second) : class_number(label).value_or(-1);
    check(number >= 0 && number < static_cast<std::int64_t>(classes.size()), ExitCode::data,
          "{}: the label '{}' is not {}", first, escape_name(label), missing);
    class_of.push_back(static_cast<std::int32_t>(number));
  }
  for (Record& record : index.records) record.label = class_of[static_cast<std::size_t>(record.label)];
}

}  // namespace

std::vector<std::string> shard_formats() {
  std::vector<std::string> names;
  for (const NamedFormat& format : kFormats) names.emplace_back(format.name);
  return names;
}

bool is_shard_format(const std::string& name) {
  return std::any_of(kFormats.begin(), kFormats.end(), [&](const NamedFormat& format) { return name == format.name; });
}

ShardIndexes index_shards(const ShardSettings& settings, const IndexSettings& index) {
  const auto* const named = std::find_if(kFormats.begin(), kFormats.end(),
                                         [&](const NamedFormat& each) { return settings.format == each.name; });
  DDP_ASSERT(named != kFormats.end());
  const ShardFormat format = named->make(settings);
  check(!settings.test.empty(), ExitCode::usage,
        "--dataset {} requires --val-dir, the shards that evaluate, such as 'val-{{0000..0007}}{}'", settings.format,
        format.suffixes.front());
  const std::vector<std::filesystem::path> test = shard_names(settings.test, format.suffixes);
  ShardIndexes texts;
  if (settings.classes.empty()) {
    const std::vector<std::filesystem::path> train = shard_names(settings.train, format.suffixes);
    std::set<std::filesystem::path> evaluating;
    for (const std::filesystem::path& path : test) evaluating.insert(path.lexically_normal());
    for (const std::filesystem::path& path : train) {
      check(!evaluating.contains(path.lexically_normal()), ExitCode::usage,
            "{} is in both --data-dir and --val-dir; name shards that train and others that evaluate",
            escape_name(path.string()));
    }
    texts.train = index_text(open_index(format, train, index));
  }
  texts.test = index_text(open_index(format, test, index));
  return texts;
}

DataSets open_shards(const ShardSettings& settings, const ShardIndexes& indexes, const ImageFolderConfig& config,
                     std::int64_t train_limit, std::int64_t test_limit, const std::shared_ptr<BadSamples>& bad) {
  DataSets sets;
  std::vector<std::string> classes = settings.classes;
  std::string missing = "one of the checkpoint's classes";
  ImageFolderConfig limited = config;
  if (classes.empty()) {
    RecordIndex train = parsed(indexes.train);
    classes = class_order({train.shards.front().path.parent_path()}, {train.labels.begin(), train.labels.end()});
    settle(train, classes, fmt::format("in {}", kClassesFile), *bad);
    limited.limit = train_limit;
    sets.train = std::make_unique<ImageFolder>(settings.format, std::move(train.shards), std::move(train.records),
                                               classes, limited, bad);
    missing = "a label of those that train";
  }
  RecordIndex test = parsed(indexes.test);
  settle(test, classes, missing, *bad);
  sets.without_train = sets.train == nullptr;
  if (sets.without_train) {
    limited.limit = train_limit;
    sets.train = std::make_unique<ImageFolder>(settings.format, test.shards, test.records, classes, limited, bad);
  }
  limited.limit = test_limit;
  limited.evaluated = true;
  sets.evaluation = fmt::format("{} ({} in {})", escape_name(settings.test), counted(test.records.size(), "image"),
                                counted(test.shards.size(), "shard"));
  sets.test = std::make_unique<ImageFolder>(settings.format, std::move(test.shards), std::move(test.records), classes,
                                            limited, bad);
  return sets;
}

}  // namespace ddp
