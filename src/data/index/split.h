// Divides the images of a folder without train/ and val/ into those that train and those that evaluate.
//
//   FolderListing listing = list_undivided_folder("photos");                     // all files in listing.train
//   const std::vector<std::uint64_t> keys = content_keys(listing.train, /*threads=*/2);
//   const std::string parts = choose_parts(listing, keys, {.share = 0.1});
//   replace_file("run/split.csv", split_csv(listing, parts), ExitCode::checkpoint);
//   divide(listing, parts);
//
// An image evaluates if its key, a hash of its content or of its group, is below a threshold. Copies of a picture are
// therefore on the same side, whatever they are called, and files that are added later do not move the others.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types/fold.h"
#include "data/index/folder_listing.h"

namespace ddp {

struct SplitRule {
  double share = 0.1;  // of the images that evaluate, without a fold
  Fold fold = {};
  // A regular expression; its first group, or else what it matches, in a file's name is the group. Empty: no groups.
  std::string group = {};
  std::string column = {};  // of a list, whose groups it has

  // "10 % of the images, chosen by their content"
  std::string text() const;
};

// A hash of the size of each file and of its first and last 4 KiB, so that a start need not read all images; of the name
// if the file cannot be read, which is reported when it is used. In the order of the listing.
std::vector<std::uint64_t> content_keys(const FolderSplit& files, int threads);

// The same of a list's groups.
std::vector<std::uint64_t> group_keys(std::span<const std::string> groups);

// A hash of the group of each file. A file that the expression does not match is a group of its own. Throws Error(usage)
// if the expression is invalid or matches no file.
std::vector<std::uint64_t> group_keys(const FolderSplit& files, const std::string& expression);

inline constexpr char kTrains = 't';
inline constexpr char kEvaluates = 'v';
inline constexpr char kTests = 'x';  // in neither

// kTrains or kEvaluates for each file. Of a class with several keys at least one is on each side.
std::string choose_parts(const FolderListing& listing, std::span<const std::uint64_t> keys, const SplitRule& rule);

// Moves the files that evaluate from listing.train to listing.test, and warns of classes of which none does. Throws
// Error(data) if there are no such files, or if `parts` is of other files.
void divide(FolderListing& listing, std::string_view parts);

// Images that evaluate and that train as well, under any name: their number, and the first ones, "val/cat/1.jpg is
// train/cat/7.jpg".
struct Copies {
  std::int64_t count = 0;
  std::vector<std::string> first;
};

// Reads the ends of those images only whose size occurs on both sides.
Copies find_copies(const FolderListing& listing, int threads);

// The division as text: a line `path,label,part` for each file, quoted where a name needs it (RFC 4180), names as
// escape_name() has them. `part` is train or val.
std::string split_csv(const FolderListing& listing, std::string_view parts);

// The first lines in which two divisions differ, "cat/1.jpg was in train and is in val, ..."; "" if they are equal.
std::string split_difference(std::string_view then, std::string_view now);

}  // namespace ddp
