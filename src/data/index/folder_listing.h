// The contents of an image folder: DIR/train/CLASS/FILE, and for evaluation DIR/val/CLASS/FILE, or `valid`, `validation` or
// `test` instead of `val`; or an undivided one, DIR/CLASS/FILE or DIR/train/CLASS/FILE alone, which data/index/split.h divides.
//
//   FolderListing listing = list_image_folder("data/cats-vs-dogs");
//   listing.classes;            // {"cat", "dog"}: the names of the folders, sorted by their bytes
//   listing.train.files[0];     // {"cat/cat.0.jpg", label 0}, sorted too
//   listing.test.folder;        // "data/cats-vs-dogs/val"
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace ddp {

// What counts, where versions differ: what a run began with applies until its end (options/defaults.h).
struct FolderRules {
  bool valid_evaluates = true;  // also folders named valid and validation, and not only val and test
  bool jfif_is_jpeg = true;     // also files named .jfif and .jpe, and not only .jpg and .jpeg
  bool all_formats = true;      // also BMP, GIF, TIFF, HEIC and AVIF, and not only JPEG, PNG and WebP
};

struct ListedFile {
  std::string name;  // below the split's folder: "cat/cat.0.jpg"
  std::int32_t label = 0;

  friend bool operator==(const ListedFile&, const ListedFile&) = default;
};

// Files whose names are not those of images: how many with which suffix, in lower case; "" no suffix, "hidden" a leading dot. Those
// that systems and programs leave behind have their own names: "Thumbs.db", "._* of macOS", "in .ipynb_checkpoints".
using PassedOver = std::map<std::string, std::int64_t>;

// A named pipe, socket or device with the name of an image.
struct SpecialFile {
  std::filesystem::path path;
  std::string kind;  // "a named pipe"
};

struct FolderSplit {
  std::filesystem::path folder;  // "data/cats-vs-dogs/train"
  std::vector<ListedFile> files;
  PassedOver passed_over;
  std::vector<SpecialFile> special;  // of `files`
};

struct FolderListing {
  std::vector<std::string> classes;  // any bytes
  FolderSplit train;
  FolderSplit test;
  // Folders beside these that could evaluate too, and are not read: "test".
  std::vector<std::string> unused;
  // What is probably not meant, a sentence each, for warnings.
  std::vector<std::string> warnings;
};

// Files whose names end in a suffix of image_suffixes(), case-insensitively, count as images, except hidden ones; subfolders
// of a class are searched recursively. A class without images in `test` gives a warning, and so do names that differ only
// in their Unicode form, which are the same class. Throws Error(data) if a folder is missing or unreadable, if a class has
// no image in `train`, or if `test` has a class that `train` lacks.
FolderListing list_image_folder(const std::filesystem::path& directory, const FolderRules& rules = {});

// The folder of the classes if the data set is undivided: `directory` if it has folders with images and none named train, val,
// valid, validation or test; DIRECTORY/train if that has none beside it that evaluates. Empty otherwise, also if nothing is there.
std::filesystem::path undivided_folder(const std::filesystem::path& directory, const FolderRules& rules = {});
// All images of an undivided folder, in `train`. Throws like list_image_folder().
FolderListing list_undivided_folder(const std::filesystem::path& folder, const FolderRules& rules = {});

// The same without a folder `train`, for an evaluation: the classes are known.
FolderListing list_evaluation_folder(const std::filesystem::path& directory, std::vector<std::string> classes,
                                     const FolderRules& rules = {});

// ".jpg, .jpeg, .png or .webp"
std::string image_suffixes(const FolderRules& rules = {});

// "9 files (7 .bmp, 2 without suffix)"
std::string passed_over_text(const PassedOver& files);

// "a named pipe", "a socket" or "a device", whose content cannot be read like that of a file; nullptr for others.
const char* special_kind(std::filesystem::file_type type);

// In lower case: ".jpg".
std::string suffix_of(const std::filesystem::path& file);

}  // namespace ddp
