// The order of the classes of data that name their labels: that of the lines of `classes.txt`, or else sorted.
//
//   class_order({"photos"}, {"10", "9", "8"});   // {"8", "9", "10"}
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ddp {

inline constexpr const char* kClassesFile = "classes.txt";

// From the first of the folders that has the file; otherwise `names` by their numbers, if all are numbers, or by their bytes.
// Throws Error(data) if the file has a class twice.
std::vector<std::string> class_order(const std::vector<std::filesystem::path>& folders,
                                     const std::set<std::string>& names);

// A class that is a number from 0 on.
std::optional<std::int64_t> class_number(const std::string& name);

}  // namespace ddp
