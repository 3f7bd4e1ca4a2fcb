// The contents of an image folder: DIR/train/CLASS/FILE and DIR/val/CLASS/FILE, or `test` instead of `val`.
//
//   FolderListing listing = list_image_folder("data/cats-vs-dogs");
//   listing.classes;            // {"cat", "dog"}: the names of the folders, sorted by their bytes
//   listing.train.files[0];     // {"cat/cat.0.jpg", label 0}, sorted too
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ddp {

struct ListedFile {
  std::string name;  // below the split's folder: "cat/cat.0.jpg"
  std::int32_t label = 0;

  friend bool operator==(const ListedFile&, const ListedFile&) = default;
};

struct FolderSplit {
  std::filesystem::path folder;  // "data/cats-vs-dogs/train"
  std::vector<ListedFile> files;
  std::int64_t passed_over = 0;  // files without an image extension
};

struct FolderListing {
  std::vector<std::string> classes;
  FolderSplit train;
  FolderSplit test;
};

// Files whose names end in .jpg, .jpeg, .png or .webp, case-insensitively, count as images, except hidden ones; subfolders of
// a class are searched recursively. Throws Error(data) if a folder is missing or unreadable, if a class has no image,
// or if the classes of the splits differ.
FolderListing list_image_folder(const std::filesystem::path& directory);

bool is_webp_name(const std::filesystem::path& file);

}  // namespace ddp
