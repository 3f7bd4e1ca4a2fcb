#include "data/sources/folder_listing.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <system_error>

#include "base/error.h"
#include "base/text.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::string lower_extension(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return ending;
}

bool is_image_name(const fs::path& path) {
  const std::string ending = lower_extension(path);
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png" || ending == ".webp";
}

[[noreturn]] void cannot_list(const fs::path& folder, const std::error_code& error) {
  throw Error(ExitCode::data,
              fmt::format("{}: cannot be listed: {}; check its permissions", folder.string(), error.message()));
}

// The folders in `folder`, sorted; hidden ones are ignored.
std::vector<std::string> subfolders(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored) && !is_hidden(entry->path())) names.push_back(entry->path().filename().string());
  }
  if (error) cannot_list(folder, error);
  std::sort(names.begin(), names.end());
  return names;
}

void list_class(FolderSplit& split, const std::string& name, std::int32_t label) {
  const fs::path folder = split.folder / name;
  const std::size_t before = split.files.size();
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, fs::directory_options::follow_directory_symlink, error), end;
       !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored)) {
      if (is_hidden(entry->path())) entry.disable_recursion_pending();
      // Symbolic links may form cycles.
      check(entry.depth() < 32, ExitCode::data, "{}: is more than 32 folders deep; does a link lead back up?",
            entry->path().string());
    } else if (is_hidden(entry->path()) || !is_image_name(entry->path())) {
      ++split.passed_over;
    } else {
      split.files.push_back({entry->path().lexically_relative(split.folder).string(), label});
    }
  }
  if (error) cannot_list(folder, error);
  check(split.files.size() > before, ExitCode::data,
        "{}: the class has no image (.jpg, .jpeg or .png); add some, or remove the folder", folder.string());
  std::sort(split.files.begin() + static_cast<std::ptrdiff_t>(before), split.files.end(),
            [](const ListedFile& a, const ListedFile& b) { return a.name < b.name; });
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// The elements of `a` that are not in `b`.
std::vector<std::string> without(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<std::string> rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
  return rest;
}

void check_same_classes(const FolderListing& listing, const std::vector<std::string>& test_classes) {
  const std::vector<std::string> missing = without(listing.classes, test_classes);
  const std::vector<std::string> added = without(test_classes, listing.classes);
  if (missing.empty() && added.empty()) return;
  const bool first = !missing.empty();
  throw Error(ExitCode::data,
              fmt::format("{}: has no class '{}', which {} has; both need the same folders",
                          (first ? listing.test : listing.train).folder.string(), (first ? missing : added).front(),
                          (first ? listing.train : listing.test).folder.string()));
}

}  // namespace

bool is_webp_name(const fs::path& file) { return lower_extension(file) == ".webp"; }

FolderListing list_image_folder(const fs::path& directory) {
  FolderListing listing;
  listing.train.folder = directory / "train";
  listing.test.folder = is_folder(directory / "val") ? directory / "val" : directory / "test";
  check(is_folder(directory), ExitCode::data,
        "no image folder: {} is not a folder; pass --data-dir the folder that contains train/CLASS/*.jpg and "
        "val/CLASS/*.jpg",
        directory.string());
  check(is_folder(listing.train.folder), ExitCode::data,
        "no image folder: {} is not a folder; images are expected as {}/CLASS/*.jpg (or .jpeg or .png)",
        listing.train.folder.string(), listing.train.folder.string());
  check(is_folder(listing.test.folder), ExitCode::data,
        "no image folder: {} has neither a folder val nor a folder test beside train; put some images of each class "
        "there",
        directory.string());
  listing.classes = subfolders(listing.train.folder);
  check(!listing.classes.empty(), ExitCode::data,
        "{}: has no folders of classes; images are expected as {}/CLASS/*.jpg", listing.train.folder.string(),
        listing.train.folder.string());
  check_same_classes(listing, subfolders(listing.test.folder));
  for (std::size_t label = 0; label < listing.classes.size(); ++label) {
    list_class(listing.train, listing.classes[label], static_cast<std::int32_t>(label));
    list_class(listing.test, listing.classes[label], static_cast<std::int32_t>(label));
  }
  return listing;
}

}  // namespace ddp
