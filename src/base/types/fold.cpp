#include "base/types/fold.h"

#include <charconv>

#include "base/error.h"

namespace ddp {

Fold parse_fold(std::string_view text) {
  constexpr int kMostFolds = 999'999;
  if (text.empty()) return {};
  Fold fold;
  const char* const end = text.data() + text.size();
  const auto number = std::from_chars(text.data(), end, fold.number);
  const bool slash = number.ec == std::errc() && number.ptr != end && *number.ptr == '/';
  const auto folds = slash ? std::from_chars(number.ptr + 1, end, fold.folds) : number;
  check(slash && folds.ec == std::errc() && folds.ptr == end && fold.folds >= 2 && fold.folds <= kMostFolds &&
            fold.number >= 1 && fold.number <= fold.folds,
        ExitCode::usage, "--fold {} is not a part K of N folds; give 1/5, 2/5 ... 5/5", text);
  return fold;
}

}  // namespace ddp
