// A part of a data set for cross-validation.
//
//   const Fold fold = parse_fold("2/5");   // the second of five
#pragma once

#include <string_view>

namespace ddp {

// --fold K/N.
struct Fold {
  int number = 0;  // from 1
  int folds = 0;   // 0: none
};

// Throws Error(usage) unless `text` is K/N with 1 <= K <= N and 2 <= N < 1,000,000; "" is no fold.
Fold parse_fold(std::string_view text);

}  // namespace ddp
