#include "data/index/split.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <regex>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/status/heartbeat.h"
#include "base/status/set_up_progress.h"
#include "base/text/csv.h"
#include "base/text/text.h"
#include "base/text/utf8.h"
#include "data/images/parallel.h"

namespace ddp {
namespace {

constexpr std::string_view kHeader = "path,label,part";
constexpr std::size_t kShownDifferences = 3;

std::uint64_t key_of(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

std::uint64_t content_key(const std::filesystem::path& path, const std::string& name) {
  constexpr std::size_t kEnd = 4096;
  std::array<std::byte, 2 * kEnd + sizeof(std::uint64_t)> bytes;
  try {
    const File file(path, File::Mode::read, ExitCode::data);
    const std::uint64_t size = file.size();
    std::size_t read = file.read_at(std::span(bytes).first(kEnd), 0);
    if (size > kEnd) {
      const std::uint64_t last = std::max<std::uint64_t>(kEnd, size - std::min<std::uint64_t>(size, kEnd));
      read += file.read_at(std::span(bytes).subspan(read, kEnd), last);
    }
    for (std::size_t i = 0; i < sizeof size; ++i) bytes[read + i] = static_cast<std::byte>(size >> (8 * i));
    return XXH3_64bits(bytes.data(), read + sizeof size);
  } catch (const Error&) {
    return key_of(name);
  }
}

// The place of a key between 0 and 1.
double place_of(std::uint64_t key) { return std::ldexp(static_cast<double>(key >> 11U), -53); }

bool evaluates(std::uint64_t key, const SplitRule& rule) {
  const double place = place_of(key);
  if (rule.fold.folds == 0) return place < rule.share;
  return static_cast<int>(place * rule.fold.folds) == rule.fold.number - 1;
}

// The keys of a class that evaluate.
std::set<std::uint64_t> evaluating_keys(const std::set<std::uint64_t>& keys, const SplitRule& rule) {
  if (keys.size() < 2) return {};
  std::set<std::uint64_t> chosen;
  for (const std::uint64_t key : keys) {
    if (evaluates(key, rule)) chosen.insert(key);
  }
  // The lowest key evaluates first when the share grows; the folds of few images take turns.
  const std::size_t turn = rule.fold.folds == 0 ? 0
                                                : static_cast<std::size_t>(rule.fold.number - 1) * keys.size() /
                                                      static_cast<std::size_t>(rule.fold.folds);
  if (chosen.empty()) chosen.insert(*std::next(keys.begin(), static_cast<std::ptrdiff_t>(turn)));
  if (chosen.size() == keys.size()) chosen.erase(*keys.rbegin());
  return chosen;
}

std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

// Path and label of a line, and its part.
std::map<std::string_view, std::string_view> parts_of(std::string_view csv) {
  std::map<std::string_view, std::string_view> parts;
  (void)next_line(csv);
  while (!csv.empty()) {
    const std::string_view line = next_line(csv);
    const std::size_t comma = line.rfind(',');
    if (comma != std::string_view::npos) parts.emplace(line.substr(0, comma), line.substr(comma + 1));
  }
  return parts;
}

}  // namespace

std::string SplitRule::text() const {
  const std::string by = !column.empty()  ? fmt::format("the column {} of the list", column)
                         : !group.empty() ? fmt::format("the group in their names, {}", group)
                                          : "their content";
  if (fold.folds > 0) return fmt::format("fold {} of {}, chosen by {}", fold.number, fold.folds, by);
  return fmt::format("{:g} % of the images, chosen by {}", 100 * share, by);
}

std::vector<std::uint64_t> content_keys(const FolderSplit& files, int threads) {
  std::vector<std::uint64_t> keys(files.files.size());
  std::set<std::filesystem::path> special;
  for (const SpecialFile& file : files.special) special.insert(file.path);
  const SetUpProgress progress("reading the ends of images to divide them", static_cast<std::int64_t>(keys.size()));
  for_each_index(keys.size(), threads, [&](std::size_t i) {
    const std::string& name = files.files[i].name;
    const std::filesystem::path path = files.folder / name;
    keys[i] = special.contains(path) ? key_of(name) : content_key(path, name);
    progress.advance();
    heartbeat();
  });
  return keys;
}

std::vector<std::uint64_t> group_keys(const FolderSplit& files, const std::string& expression) {
  std::optional<std::regex> pattern;
  try {
    pattern.emplace(expression);
  } catch (const std::regex_error& error) {
    throw Error(ExitCode::usage,
                fmt::format("--split-group regex:{} is not a regular expression: {}", expression, error.what()));
  }
  std::vector<std::uint64_t> keys;
  bool any = false;
  for (const ListedFile& file : files.files) {
    std::smatch match;
    const bool found = std::regex_search(file.name, match, *pattern);
    any = any || found;
    const std::string group = !found ? file.name : match.size() > 1 ? match[1].str() : match[0].str();
    keys.push_back(key_of((found ? "group " : "file ") + group));
  }
  check(any, ExitCode::usage, "--split-group regex:{} matches no file, such as {}", expression,
        escape_name(files.files.front().name));
  return keys;
}

std::vector<std::uint64_t> group_keys(std::span<const std::string> groups) {
  std::vector<std::uint64_t> keys;
  for (const std::string& group : groups) keys.push_back(key_of("group " + group));
  return keys;
}

std::string choose_parts(const FolderListing& listing, std::span<const std::uint64_t> keys, const SplitRule& rule) {
  std::vector<std::set<std::uint64_t>> of_class(listing.classes.size());
  const std::vector<ListedFile>& files = listing.train.files;
  for (std::size_t i = 0; i < files.size(); ++i) of_class[static_cast<std::size_t>(files[i].label)].insert(keys[i]);
  // With groups, a class that needs one takes the whole group, of other classes too.
  std::set<std::uint64_t> chosen;
  for (const std::set<std::uint64_t>& each : of_class) chosen.merge(evaluating_keys(each, rule));
  std::string parts(files.size(), kTrains);
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (chosen.contains(keys[i])) parts[i] = kEvaluates;
  }
  return parts;
}

void divide(FolderListing& listing, std::string_view parts) {
  const std::string folder = escape_name(listing.train.folder.string());
  check(
      parts.size() == listing.train.files.size(), ExitCode::data,
      "{}: has {} images here, but {} when it was divided; do not change it while a run starts, and let all ranks see "
      "the same files",
      folder, listing.train.files.size(), parts.size());
  std::vector<ListedFile> trains;
  std::vector<std::int64_t> evaluating(listing.classes.size());
  std::vector<std::int64_t> training(listing.classes.size());
  listing.test.folder = listing.train.folder;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    ListedFile& file = listing.train.files[i];
    if (parts[i] == kTests) continue;
    const bool evaluated = parts[i] == kEvaluates;
    ++(evaluated ? evaluating : training)[static_cast<std::size_t>(file.label)];
    (evaluated ? listing.test.files : trains).push_back(std::move(file));
  }
  listing.train.files = std::move(trains);
  check(!listing.test.files.empty(), ExitCode::data,
        "{}: no image is left to evaluate: every class has a single picture; add some, or put others in {}/val", folder,
        folder);
  std::vector<std::string> missing;
  for (std::size_t label = 0; label < evaluating.size(); ++label) {
    const std::string name = "'" + escape_name(listing.classes[label]) + "'";
    check(training[label] > 0, ExitCode::data,
          "{}: no image of the class {} is left to train; its groups evaluate other classes too: use another "
          "--split-group, or none",
          folder, name);
    if (evaluating[label] == 0) missing.push_back(name);
  }
  if (missing.empty()) return;
  const std::size_t all = missing.size();
  missing.resize(std::min<std::size_t>(all, 6));
  listing.warnings.push_back(fmt::format(
      "{}: {} of {} classes have a single picture each ({}{}), which trains: evaluation "
      "leaves {} out",
      folder, all, evaluating.size(), join(missing), all > missing.size() ? ", ..." : "", all == 1 ? "it" : "them"));
}

Copies find_copies(const FolderListing& listing, int threads) {
  const auto sizes_of = [threads](const FolderSplit& split) {
    std::vector<std::uintmax_t> sizes(split.files.size());
    for_each_index(sizes.size(), threads, [&](std::size_t i) {
      std::error_code error;
      sizes[i] = std::filesystem::file_size(split.folder / split.files[i].name, error);
      if (error) sizes[i] = 0;
      heartbeat();
    });
    return sizes;
  };
  const std::vector<std::uintmax_t> train = sizes_of(listing.train);
  const std::vector<std::uintmax_t> test = sizes_of(listing.test);
  const std::set<std::uintmax_t> evaluated(test.begin(), test.end());
  std::set<std::uintmax_t> shared;
  std::map<std::uint64_t, std::size_t> trained;
  const auto key = [](const FolderSplit& split, std::size_t i) {
    return content_key(split.folder / split.files[i].name, "");
  };
  for (std::size_t i = 0; i < train.size(); ++i) {
    if (train[i] == 0 || !evaluated.contains(train[i])) continue;
    shared.insert(train[i]);
    trained.emplace(key(listing.train, i), i);
    heartbeat();
  }
  Copies copies;
  for (std::size_t i = 0; i < test.size(); ++i) {
    if (!shared.contains(test[i])) continue;
    const auto found = trained.find(key(listing.test, i));
    if (found == trained.end()) continue;
    ++copies.count;
    if (copies.first.size() >= kShownDifferences) continue;
    const auto shown = [](const FolderSplit& split, std::size_t at) {
      return escape_name((split.folder / split.files[at].name).string());
    };
    copies.first.push_back(fmt::format("{} is {}", shown(listing.test, i), shown(listing.train, found->second)));
  }
  return copies;
}

std::string split_csv(const FolderListing& listing, std::string_view parts) {
  std::string text(kHeader);
  text += '\n';
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const ListedFile& file = listing.train.files[i];
    text += fmt::format("{},{},{}\n", csv_cell(escape_name(file.name)),
                        csv_cell(escape_name(listing.classes[static_cast<std::size_t>(file.label)])),
                        parts[i] == kEvaluates ? "val"
                        : parts[i] == kTests   ? "test"
                                               : "train");
  }
  return text;
}

std::string split_difference(std::string_view then, std::string_view now) {
  if (then == now) return "";
  const auto before = parts_of(then);
  const auto after = parts_of(now);
  std::vector<std::string> lines;
  std::size_t count = 0;
  const auto add = [&](std::string_view file, const std::string& what) {
    ++count;
    if (lines.size() < kShownDifferences) lines.push_back(fmt::format("{} {}", file.substr(0, file.rfind(',')), what));
  };
  for (const auto& [file, part] : after) {
    const auto found = before.find(file);
    if (found == before.end()) {
      add(file, fmt::format("is new, in {}", part));
    } else if (found->second != part) {
      add(file, fmt::format("was in {} and is in {}", found->second, part));
    }
  }
  for (const auto& [file, part] : before) {
    if (!after.contains(file)) add(file, fmt::format("was in {} and is missing", part));
  }
  if (count > lines.size()) lines.push_back(fmt::format("... ({} in all)", count));
  return count == 0 ? "the order of the files" : join(lines);
}

}  // namespace ddp
