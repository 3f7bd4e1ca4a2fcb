// What other programs call the options of this one, for suggestions: PyTorch and torchvision's reference scripts, timm,
// Keras and Lightning.
//
//   const ForeignNames* elsewhere = find_foreign("wd");   // key: "weight-decay"
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ddp {

struct ForeignNames {
  std::string_view key;     // of this program; empty: it has no such option
  std::string_view advice;  // in place of "did you mean --KEY?": what to use; not empty if `key` is
  std::string_view names;   // without dashes, separated by blanks; '_' is '-'
};

// Those that `name` is one of, or nullptr.
const ForeignNames* find_foreign(std::string_view name);

// All of them.
std::span<const ForeignNames> foreign_names();

// The value of an option that accepts `values` and that other programs, or people in a hurry, write like `word`; "" if
// there is none: suggest_value("CosineAnnealingLR", {"constant", "cosine"}) is "cosine".
std::string suggest_value(std::string_view word, std::span<const std::string> values);

}  // namespace ddp
