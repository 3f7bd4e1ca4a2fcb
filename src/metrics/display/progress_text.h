// The texts of progress: a bar that fits a terminal's width, and a plain line.
//
//   progress_bar(progress, eta, 100, /*utf8=*/false)
//     "epoch  3/10 [#########--------------------]  31%  step 734/2,340  loss 0.4321  12,345 images/s  eta 1:23"
//   progress_line(progress, eta)
//     "epoch  3/10   step   734/2,340   loss 0.4321   lr 0.1        12,345 images/s   62% of peak   compute   eta 1:23"
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "metrics/phases.h"

namespace ddp {

// The progress of training after a step.
struct TrainingProgress {
  std::int64_t epoch = 0;   // the current one, from 1
  std::int64_t epochs = 0;  // of the whole run
  std::int64_t step = 0;    // updates since the start of training
  std::int64_t steps = 0;   // of the whole run
  double loss = 0;
  double lr = 0;
  double images_per_second = 0;  // of all ranks, over the last log interval
  double peak_share = -1;        // of the devices' peak, 0 to 1; negative: unknown
  std::string limit = {};        // what takes most of rank 0's time: limit_of(); empty: unknown
};

// "compute", or the phase that takes more time than forward and backward together; "" without any time.
std::string limit_of(const PhaseTotals& phases);

// At most `columns` - 1 characters, for at least 20 columns; the least important parts are dropped first. `eta` is in
// seconds.
std::string progress_bar(const TrainingProgress& progress, std::optional<double> eta, int columns, bool utf8);

std::string progress_line(const TrainingProgress& progress, std::optional<double> eta);

// "0.4321", and of large ones four digits: "1.234e+05".
std::string loss_text(double loss);

// `text` with line breaks at blanks, so that no line has more than `columns` characters where that is possible; further
// lines are indented by `indent` blanks.
std::string wrapped(std::string_view text, int columns, std::size_t indent);
// At most `columns` characters of `text`.
std::string shortened(std::string_view text, int columns);

// The number of characters that a terminal shows of a UTF-8 text without wide or combining ones.
int text_width(const std::string& text);

}  // namespace ddp
