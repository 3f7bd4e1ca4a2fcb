// The terminal output of a run: a header, progress, a table of epochs, and the time by phase.
//
//   Console console(ProgressStyle::automatic);
//   console.header("ddp_train 0.1.0", {{"model", "lenet, 431,080 parameters"}, {"ranks", "2 on 1 host"}});
//   console.update(progress);                      // each step
//   console.log(progress);                         // each log interval
//   console.epoch(epoch_record);                   // each epoch
//   console.summary({.result = "accuracy 98.30 %", .verdict = "", .ranks = totals_of_all_ranks, .hosts = hosts});
//
// On a terminal the bar is redrawn in place and the table grows above it. Elsewhere a line is printed for each log
// interval and each epoch, and the whole table at the end. Used by rank 0 only. Output that fails, for example into a
// closed pipe or to a reader that has stopped reading, is dropped without an error, since the run matters more.
#pragma once

#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "metrics/display/progress_text.h"
#include "metrics/display/terminal.h"
#include "metrics/logs/run_log.h"
#include "metrics/phases.h"
#include "options/options.h"

namespace ddp {

// A label and its value; without a label it continues the previous value, without both it is an empty line.
using HeaderRow = std::pair<std::string, std::string>;

struct RunSummary {
  std::string result;   // the accuracy, or why there is none
  std::string verdict;  // why the run is as fast as it is; empty: unknown
  bool healthy = true;  // the verdict finds nothing wrong
  std::span<const PhaseTotals> ranks;
  std::span<const std::string> hosts;  // one per rank; empty: no rank is named as the slowest
  bool full = false;                   // a table of the phases in place of a line
};

class Console {
 public:
  // `read_clock` is for tests.
  explicit Console(ProgressStyle style, std::FILE* out = stdout, double (*read_clock)() = now);
  // Removes the bar.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // On a terminal long values continue on the next line, in their column.
  void header(std::string_view title, std::span<const HeaderRow> rows);
  void header(std::string_view title, std::initializer_list<HeaderRow> rows) {
    header(title, std::span(rows.begin(), rows.size()));
  }

  // After each step: redraws the bar, at most ten times a second.
  void update(const TrainingProgress& progress);
  // After each log interval: prints a line if there is no bar.
  void log(const TrainingProgress& progress);
  // Adds a row to the table.
  void epoch(const EpochRecord& record);
  // Prints the table if it has not been shown row by row, then what was learned, then where the time went.
  void summary(const RunSummary& summary);

  // While the run is set up: in place on a terminal, as a line elsewhere.
  void waiting(std::string_view text);
  bool has_bar() const { return style_ == ProgressStyle::bar; }
  // Prints a line above the bar.
  void line(std::string_view text);
  // Removes the bar before other output; the next update() restores it.
  void clear_bar();

 private:
  void write(std::string_view text);
  std::string paint(std::string_view text, Paint paint) const {
    return terminal_.coloured() ? painted(text, paint) : std::string(text);
  }
  // Reads the clock and records the time of the first progress, from which the remaining time is estimated.
  double note(const TrainingProgress& progress);
  std::optional<double> eta(const TrainingProgress& progress, double time) const;

  std::FILE* out_;
  double (*read_clock_)();
  Terminal terminal_;
  ProgressStyle style_;  // never automatic
  bool utf8_;
  bool bar_shown_ = false;
  double last_draw_ = -1e9;
  std::int64_t epochs_ = 0;  // 0 before the first progress
  std::int64_t first_step_ = 0;
  double first_time_ = 0;
  bool table_begun_ = false;
  std::string table_;  // rows to show at the end
};

}  // namespace ddp
