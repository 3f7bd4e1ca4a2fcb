// The results of a sweep, best first: as a table for the terminal and as leaderboard.csv.
//
//   const std::vector<TrialResult> best = ranked(results);
//   fmt::print("{}", board_text(best, /*rows=*/10));
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sweep/scheduler.h"
#include "sweep/settings.h"

namespace ddp {

// What is known about one trial.
struct TrialResult {
  int trial = 0;  // counts from 1, as in the name of its folder
  Setting setting = {};
  TrialState state = TrialState::waiting;
  std::int64_t epochs = 0;                        // completed
  std::optional<double> accuracy = std::nullopt;  // the best on the test set, 0 to 1
  std::int64_t best_epoch = 0;                    // its epoch
  std::optional<double> val_loss = std::nullopt;  // of that epoch
  double seconds = 0;                             // of the trial's processes
  std::string reason = {};                        // why it failed
};

// By accuracy, best first; trials without one last, by number.
std::vector<TrialResult> ranked(std::span<const TrialResult> results);

// An aligned table of the first `rows` results, with a line for those left out.
std::string board_text(std::span<const TrialResult> ranked, std::size_t rows);

// For trials of --fold, a line for each setting of the other options: the mean over its folds and their sample standard
// deviation. Empty without them.
std::string folds_text(std::span<const TrialResult> results);

// A header and one row per trial: place, trial, state, epochs, val_accuracy, best_epoch, val_loss, seconds, one column per
// option of the settings, reason.
std::string board_csv(std::span<const TrialResult> ranked);

}  // namespace ddp
