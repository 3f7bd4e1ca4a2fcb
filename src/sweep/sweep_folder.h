// The folder of a sweep, written by rank 0: which trials there are, how each ended, and the leaderboard.
//
//   SweepFolder folder("runs/sweep", options, settings);   // reads and checks, writes nothing
//   std::vector<TrialResult> results = folder.results();   // those of a sweep that is continued, or all waiting
//   folder.open();
//   folder.save(results);                                  // sweep.json and leaderboard.csv
//
// Beside these two files are trial-0001, the run folder of the first trial, trial-0001.log, its output, and
// configs/trial-0001.cfg, its options.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "options/options.h"
#include "sweep/leaderboard.h"

namespace ddp {

// The files of each trial.
struct SweepPaths {
  std::filesystem::path folder;

  std::filesystem::path config(int trial) const;
  std::filesystem::path log(int trial) const;
  std::filesystem::path run(int trial) const;
};

class SweepFolder {
 public:
  // `base`: the options of the command; with --resume auto an earlier sweep is continued, which must have had the same
  // settings and options. Throws Error(usage) if it had not, or if the folder holds a sweep and --resume is not auto, and
  // Error(checkpoint) if a file cannot be read.
  SweepFolder(std::filesystem::path path, const Options& base, const std::vector<Setting>& settings);

  const std::vector<TrialResult>& results() const { return results_; }
  // Whether a sweep is continued.
  bool resumed() const { return resumed_; }

  // Creates the folder, the configurations and the run folders. Throws Error(checkpoint) if one of them cannot be written.
  void open();
  // Replaces sweep.json and leaderboard.csv.
  void save(const std::vector<TrialResult>& results);

  const SweepPaths& paths() const { return paths_; }

 private:
  SweepPaths paths_;
  Options base_;
  std::vector<TrialResult> results_;
  bool resumed_ = false;
};

// The last line of a trial's output that reports an error, without the program's name; or empty.
std::string last_error(const std::filesystem::path& log);

}  // namespace ddp
