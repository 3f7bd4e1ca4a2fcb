#include "data/index/folder_listing.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/status/heartbeat.h"
#include "base/text/text.h"
#include "base/text/utf8.h"
#include "data/formats/formats.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

// Names in a message.
constexpr std::size_t kShownNames = 6;

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::vector<std::string> suffixes(const FolderRules& rules) {
  if (!rules.jfif_is_jpeg) return {".jpg", ".jpeg", ".png", ".webp"};
  const std::span<const std::string_view> all = picture_suffixes();
  return {all.begin(), rules.all_formats ? all.end() : all.begin() + kFirstSuffixes};
}

std::string shown(const fs::path& path) { return escape_name(path.string()); }

std::string quoted(std::vector<std::string> names) {
  const std::size_t all = names.size();
  if (all > kShownNames) names.resize(kShownNames);
  for (std::string& name : names) name = "'" + escape_name(name) + "'";
  return all > kShownNames ? fmt::format("{}, ... ({} in all)", join(names), all) : join(names);
}

[[noreturn]] void cannot_list(const fs::path& folder, const std::error_code& error) {
  throw Error(ExitCode::data,
              fmt::format("{}: cannot be listed: {}; check its permissions", shown(folder), error.message()));
}

// Without a call of the system where the folder says it. `error` is set where it is unknown.
fs::file_type type_of(const fs::directory_entry& entry, std::error_code& error) {
  if (!entry.is_symlink(error) && !error) {
    if (entry.is_regular_file(error)) return fs::file_type::regular;
    if (entry.is_directory(error)) return fs::file_type::directory;
  }
  error.clear();
  const fs::file_type type = entry.status(error).type();
  // A link that leads nowhere.
  if (type == fs::file_type::not_found) error.clear();
  return type;
}

// Calls `look` with each entry.
template <class Look>
void for_each_entry(const fs::path& folder, Look look) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) look(*entry);
  if (error) cannot_list(folder, error);
  heartbeat();
}

// The folders in `folder`, sorted; hidden ones are ignored.
std::vector<std::string> subfolders(const fs::path& folder) {
  std::vector<std::string> names;
  for_each_entry(folder, [&](const fs::directory_entry& entry) {
    if (is_hidden(entry.path())) return;
    std::error_code error;
    const fs::file_type type = type_of(entry, error);
    // It might be a class.
    if (error && !entry.path().has_extension()) cannot_list(entry.path(), error);
    if (type == fs::file_type::directory) names.push_back(entry.path().filename().string());
  });
  std::sort(names.begin(), names.end());
  return names;
}

// By which name a file is counted that is passed over.
std::string kind_of_other_file(const fs::path& name, const std::string& suffix) {
  std::string text = name.string();
  if (lower_case(text) == "thumbs.db") return "Thumbs.db";
  if (text.starts_with("._")) return "._* of macOS";
  if (text == ".DS_Store") return text;
  return is_hidden(name) ? "hidden" : suffix;
}

// What a folder of a class contains.
struct ClassContents {
  std::vector<std::string> files;  // below the split's folder, sorted
  PassedOver passed_over;
  std::vector<SpecialFile> special;
  bool direct = false;              // images lie in the folder itself
  std::vector<std::string> deeper;  // the subfolders of the class that have some
};

class ClassSearch {
 public:
  ClassSearch(fs::path split, const FolderRules& rules) : split_(std::move(split)), suffixes_(suffixes(rules)) {}

  ClassContents run(const std::string& name) {
    contents_ = {};
    search(name, 0);
    std::sort(contents_.files.begin(), contents_.files.end());
    return std::move(contents_);
  }

 private:
  // `below`: the folder, below that of the split.
  void search(const fs::path& below, int depth) {
    const fs::path folder = split_ / below;
    // Symbolic links may form cycles.
    check(depth < 32, ExitCode::data, "{}: is more than 32 folders deep; does a link lead back up?", shown(folder));
    const std::size_t before = contents_.files.size();
    std::vector<fs::path> deeper;
    for_each_entry(folder, [&](const fs::directory_entry& entry) { look_at(entry, below, deeper); });
    contents_.direct = contents_.direct || (depth == 0 && contents_.files.size() > before);
    std::sort(deeper.begin(), deeper.end());
    for (const fs::path& each : deeper) {
      const std::size_t files = contents_.files.size();
      search(each, depth + 1);
      if (depth == 0 && contents_.files.size() > files) contents_.deeper.push_back(each.filename().string());
    }
  }

  void look_at(const fs::directory_entry& entry, const fs::path& below, std::vector<fs::path>& deeper) {
    const fs::path name = entry.path().filename();
    std::error_code error;
    const fs::file_type type = type_of(entry, error);
    const std::string suffix = suffix_of(name);
    const bool image = !is_hidden(name) && std::find(suffixes_.begin(), suffixes_.end(), suffix) != suffixes_.end();
    if (error && !image && !is_hidden(name) && suffix.empty()) cannot_list(entry.path(), error);
    if (type == fs::file_type::directory) {
      if (!is_hidden(name)) {
        deeper.push_back(below / name);
      } else {
        count_hidden_folder(entry.path());
      }
    } else if (!image) {
      ++contents_.passed_over[kind_of_other_file(name, suffix)];
    } else {
      contents_.files.push_back((below / name).string());
      if (const char* kind = special_kind(type)) contents_.special.push_back({entry.path(), kind});
    }
  }

  // Its files are not read.
  void count_hidden_folder(const fs::path& folder) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      ++contents_.passed_over["in " + folder.filename().string()];
    }
  }

  fs::path split_;
  std::vector<std::string> suffixes_;
  ClassContents contents_;
};

void add(FolderSplit& split, ClassContents contents, std::int32_t label) {
  for (std::string& file : contents.files) split.files.push_back({std::move(file), label});
  for (const auto& [suffix, count] : contents.passed_over) split.passed_over[suffix] += count;
  split.special.insert(split.special.end(), contents.special.begin(), contents.special.end());
}

[[noreturn]] void no_image(const fs::path& folder, const PassedOver& passed_over, const FolderRules& rules) {
  const std::string text = fmt::format("{}: the class has no image ({})", shown(folder), image_suffixes(rules));
  throw Error(ExitCode::data,
              passed_over.empty()
                  ? text + "; add some, or remove the folder"
                  : fmt::format("{}, only {}, which are not read; convert them to JPEG or PNG, or remove the folder",
                                text, passed_over_text(passed_over)));
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (error && type != fs::file_type::not_found) {
    throw Error(ExitCode::data,
                fmt::format("{}: cannot be opened: {}; check its permissions and those of the folders above it",
                            shown(path), error.message()));
  }
  return type == fs::file_type::directory;
}

// Where the images probably are, as an addition to a message.
std::string hint(const fs::path& directory) {
  const std::vector<std::string> names = subfolders(directory);
  for (const std::string& name : names) {
    if (is_folder(directory / name / "train")) return fmt::format(" (did you mean {}?)", shown(directory / name));
  }
  return names.empty() ? "" : fmt::format(" (it has the folders {})", quoted(names));
}

// The folders that could evaluate, the preferred one first.
std::vector<std::string> evaluation_folders(const fs::path& directory, const FolderRules& rules) {
  std::vector<std::string> names = {"val", "valid", "validation", "test"};
  if (!rules.valid_evaluates) names = {"val", "test"};
  std::erase_if(names, [&](const std::string& name) { return !is_folder(directory / name); });
  return names;
}

// The folder that evaluates; those beside it are listed as unused.
fs::path evaluation_folder(const fs::path& directory, const FolderRules& rules, FolderListing& listing) {
  listing.unused = evaluation_folders(directory, rules);
  check(!listing.unused.empty(), ExitCode::data,
        "no image folder: {} has no folder val, valid, validation or test beside train{}; put some images of each "
        "class in val",
        shown(directory), hint(directory));
  const std::string chosen = listing.unused.front();
  listing.unused.erase(listing.unused.begin());
  return directory / chosen;
}

void warn_of_nesting(FolderListing& listing, const std::vector<ClassContents>& classes) {
  const bool nested = std::all_of(classes.begin(), classes.end(),
                                  [](const ClassContents& each) { return !each.direct && each.deeper.size() >= 2; });
  const std::string& first = listing.classes.front();
  const std::string below = nested ? quoted(classes.front().deeper) : "";
  if (classes.size() == 1) {
    listing.warnings.push_back(fmt::format(
        "{} has one class only, '{}', so there is nothing to learn{}", shown(listing.train.folder), escape_name(first),
        nested ? fmt::format("; its images lie in {}: if these are the classes, move them up by one folder", below)
               : "; classes are the folders in it"));
  } else if (nested) {
    listing.warnings.push_back(
        fmt::format("no class of {} has images in its own folder; those of '{}' lie in {} and are all of class '{}': "
                    "if these are the classes, move them up by one folder",
                    shown(listing.train.folder), escape_name(first), below, escape_name(first)));
  }
}

void list_train(FolderListing& listing, const FolderRules& rules) {
  const fs::path& folder = listing.train.folder;
  listing.classes = subfolders(folder);
  check(!listing.classes.empty(), ExitCode::data,
        "{}: has no folders of classes; images are expected as {}/CLASS/*.jpg", shown(folder), shown(folder));
  std::map<std::string, std::string> forms;
  for (const std::string& name : listing.classes) {
    const auto [found, added] = forms.emplace(same_form(name), name);
    if (added) continue;
    listing.warnings.push_back(
        fmt::format("{} has two folders with the name '{}', in different Unicode forms: they are two classes",
                    shown(folder), escape_name(name)));
  }
  ClassSearch search(folder, rules);
  std::vector<ClassContents> classes;
  for (std::size_t label = 0; label < listing.classes.size(); ++label) {
    ClassContents contents = search.run(listing.classes[label]);
    if (contents.files.empty()) no_image(folder / listing.classes[label], contents.passed_over, rules);
    add(listing.train, contents, static_cast<std::int32_t>(label));
    contents.files.clear();
    classes.push_back(std::move(contents));
  }
  warn_of_nesting(listing, classes);
}

// The folder of each class among `names`, or "": the one of the same bytes, or else of the same Unicode form. The others
// stay in `names`.
std::vector<std::string> folders_of(const std::vector<std::string>& classes, std::vector<std::string>& names) {
  std::vector<std::string> folders(classes.size());
  const auto match = [&](auto key) {
    for (std::size_t label = 0; label < classes.size(); ++label) {
      if (!folders[label].empty()) continue;
      const auto found = std::find_if(names.begin(), names.end(),
                                      [&](const std::string& name) { return key(name) == key(classes[label]); });
      if (found == names.end()) continue;
      folders[label] = *found;
      names.erase(found);
    }
  };
  match([](const std::string& name) { return std::string_view(name); });
  if (!names.empty()) match(same_form);
  return folders;
}

// A folder without images is nobody's class.
void check_only_known(const FolderListing& listing, const std::vector<std::string>& others, ClassSearch& search) {
  for (const std::string& name : others) {
    if (search.run(name).files.empty()) continue;
    const auto near = std::find_if(listing.classes.begin(), listing.classes.end(), [&](const std::string& each) {
      return same_form(lower_case(each)) == same_form(lower_case(name));
    });
    throw Error(ExitCode::data,
                fmt::format("{} has no class '{}', which {} has{}; put images of it there, or remove {}",
                            listing.train.files.empty() ? "the checkpoint" : shown(listing.train.folder) + ":",
                            escape_name(name), shown(listing.test.folder),
                            near == listing.classes.end() ? "" : fmt::format(" (but '{}')", escape_name(*near)),
                            shown(listing.test.folder / name)));
  }
}

void list_test(FolderListing& listing, const FolderRules& rules) {
  const fs::path& folder = listing.test.folder;
  std::vector<std::string> names = subfolders(folder);
  const std::vector<std::string> folders = folders_of(listing.classes, names);
  ClassSearch search(folder, rules);
  check_only_known(listing, names, search);
  std::vector<std::string> missing;
  PassedOver passed_over;
  for (std::size_t label = 0; label < folders.size(); ++label) {
    ClassContents contents = folders[label].empty() ? ClassContents{} : search.run(folders[label]);
    if (contents.files.empty()) {
      missing.push_back(listing.classes[label]);
      for (const auto& [suffix, count] : contents.passed_over) passed_over[suffix] += count;
    }
    add(listing.test, std::move(contents), static_cast<std::int32_t>(label));
  }
  const std::string others = passed_over.empty() ? "" : fmt::format(", only {}", passed_over_text(passed_over));
  check(missing.size() < folders.size(), ExitCode::data,
        "{}: has no image of any class ({}){}; put some there as {}/CLASS/*.jpg{}", shown(folder),
        image_suffixes(rules), others, shown(folder),
        listing.unused.empty() ? "" : fmt::format(", or remove it to evaluate on {}", listing.unused.front()));
  if (!missing.empty()) {
    listing.warnings.push_back(fmt::format("{} has no image of {} of the {} classes ({}){}: evaluation leaves {} out",
                                           shown(folder), missing.size(), folders.size(), quoted(missing), others,
                                           missing.size() == 1 ? "it" : "them"));
  }
}

}  // namespace

const char* special_kind(fs::file_type type) {
  switch (type) {
    case fs::file_type::fifo:
      return "a named pipe";
    case fs::file_type::socket:
      return "a socket";
    case fs::file_type::block:
    case fs::file_type::character:
      return "a device";
    default:
      return nullptr;
  }
}

std::string suffix_of(const fs::path& file) { return lower_case(file.extension().string()); }

std::string image_suffixes(const FolderRules& rules) {
  std::vector<std::string> all = suffixes(rules);
  const std::string last = all.back();
  all.pop_back();
  return join(all) + " or " + last;
}

std::string passed_over_text(const PassedOver& files) {
  constexpr std::size_t kShownSuffixes = 5;
  constexpr std::size_t kLongestSuffix = 12;
  std::vector<std::pair<std::int64_t, std::string>> kinds;
  std::int64_t all = 0;
  for (const auto& [suffix, count] : files) {
    all += count;
    // "Photo from 12.May 2021" has no suffix.
    const bool none = suffix.empty() || (suffix.front() == '.' && suffix.size() > kLongestSuffix);
    kinds.emplace_back(-count, none ? "without suffix" : escape_name(suffix));
  }
  std::sort(kinds.begin(), kinds.end());
  std::vector<std::string> texts;
  std::int64_t left = all;
  for (const auto& [count, kind] : kinds) {
    if (texts.size() == kShownSuffixes) break;
    texts.push_back(fmt::format("{} {}", -count, kind));
    left += count;
  }
  if (left > 0) texts.push_back(fmt::format("{} others", left));
  return fmt::format("{} ({})", counted(static_cast<std::uint64_t>(all), "file"), join(texts));
}

FolderListing list_image_folder(const fs::path& directory, const FolderRules& rules) {
  FolderListing listing;
  listing.train.folder = directory / "train";
  check(is_folder(directory), ExitCode::data,
        "no image folder: {} is not a folder; pass --data-dir the folder that contains CLASS/*.jpg, or "
        "train/CLASS/*.jpg and val/CLASS/*.jpg",
        shown(directory));
  check(is_folder(listing.train.folder), ExitCode::data,
        "no image folder: {} is not a folder{}; images are expected as {}/CLASS/*.jpg (or {}), or in CLASS/ without "
        "train/ and val/",
        shown(listing.train.folder), hint(directory), shown(listing.train.folder), image_suffixes(rules));
  listing.test.folder = evaluation_folder(directory, rules, listing);
  list_train(listing, rules);
  list_test(listing, rules);
  return listing;
}

fs::path undivided_folder(const fs::path& directory, const FolderRules& rules) {
  if (!is_folder(directory) || !evaluation_folders(directory, rules).empty()) return {};
  if (is_folder(directory / "train")) return directory / "train";
  const std::vector<std::string> names = subfolders(directory);
  // The folder above that of a data set.
  for (const std::string& name : names) {
    if (is_folder(directory / name / "train")) return {};
  }
  ClassSearch search(directory, rules);
  const bool any =
      std::any_of(names.begin(), names.end(), [&](const std::string& name) { return !search.run(name).files.empty(); });
  return any ? directory : fs::path();
}

FolderListing list_undivided_folder(const fs::path& folder, const FolderRules& rules) {
  FolderListing listing;
  listing.train.folder = folder;
  list_train(listing, rules);
  return listing;
}

FolderListing list_evaluation_folder(const fs::path& directory, std::vector<std::string> classes,
                                     const FolderRules& rules) {
  FolderListing listing;
  listing.classes = std::move(classes);
  check(is_folder(directory), ExitCode::data,
        "no image folder: {} is not a folder; pass --data-dir the folder that contains val/CLASS/*.jpg",
        shown(directory));
  listing.train.folder = directory / "train";
  listing.test.folder = evaluation_folder(directory, rules, listing);
  list_test(listing, rules);
  return listing;
}

}  // namespace ddp
