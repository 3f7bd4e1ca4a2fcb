// The files that a pattern of shards names.
//
//   shard_names("train-{0000..0127}.tar", {".tar"});   // 128 files
//   shard_names("{cats,dogs}.tar", {".tar"});          // two
//   shard_names("shards/train", {".tar"});             // all files of a folder that end in .tar, sorted
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ddp {

// Braces are expanded as by bash: ranges of numbers, with leading zeros where the first has them, and lists. Throws Error(usage)
// for a pattern that names too many files, Error(data) for a folder without files that end in one of `suffixes`, and for the first
// file that does not exist, with the number of those that are missing.
std::vector<std::filesystem::path> shard_names(const std::string& pattern, const std::vector<std::string>& suffixes);

}  // namespace ddp
