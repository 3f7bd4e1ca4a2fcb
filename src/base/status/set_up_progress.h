// How far a long piece of work before the first step is, for people who wait; metrics/display/waiting_lines.h shows it.
//
//   const SetUpProgress progress("timing kernels", 40);   // then, after each:
//   progress.advance();                                   // set_up_progress() is "timing kernels, 12 of 40"
//
// Thread-safe. The piece that began last is shown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddp {

class SetUpProgress {
 public:
  // A `total` of 0 is not known.
  explicit SetUpProgress(std::string_view what, std::int64_t total = 0);
  ~SetUpProgress();
  SetUpProgress(const SetUpProgress&) = delete;
  SetUpProgress& operator=(const SetUpProgress&) = delete;

  void advance(std::int64_t count = 1) const;
};

// Empty if nothing is in progress.
std::string set_up_progress();

}  // namespace ddp
