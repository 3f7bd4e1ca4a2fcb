// Whether a data set has the classes that a checkpoint was trained on.
//
//   const std::vector<std::string> classes = {"b cat", "dog"};
//   const std::string why = class_difference(classes, TrainingState().classes);   // "" if they are the same
//
// Checkpoints of older versions have U+FFFD in place of bytes that are not UTF-8. The same names in another Unicode form
// (macOS decomposes accents) are the same classes as long as their order, and so the labels, is the same.
#pragma once

#include <span>
#include <string>

namespace ddp {

// Both as escape_name() has them, in the order of the labels. The clause names both sides and says what to do.
std::string class_difference(std::span<const std::string> classes, std::span<const std::string> stored);

}  // namespace ddp
