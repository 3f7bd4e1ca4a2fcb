// One HTML file that shows one or several runs, or a sweep: first what was learned, then what limits the speed, then the
// options. It needs no network and no scripts.
//
//   const std::vector<ReportedRun> runs = {read_reported_run("runs/a"), read_reported_run("runs/b")};
//   const std::string html = report(runs);
//   const std::string of_sweep = report(read_reported_sweep("runs/sweep"));
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "explain/verdict.h"
#include "metrics/logs/read_log.h"

namespace ddp {

struct ReportedRun {
  std::string name;
  std::filesystem::path folder;
  RunHistory history;
  std::vector<EpochRecord> epochs;            // of summary.csv
  std::optional<RunTiming> timing;            // not in runs of older versions
  std::map<std::string, std::string> config;  // the options by key
  Options options;
  std::string begun;                 // "2026-03-01 14:05 UTC"; empty: unknown
  std::vector<std::string> classes;  // their names; empty: their numbers. The caller sets them
};

// Throws Error(checkpoint) if it is not the folder of a run.
ReportedRun read_reported_run(const std::filesystem::path& folder);

// A trial of a sweep as leaderboard.csv has it.
struct ReportedTrial {
  std::string trial;
  std::string state;
  std::string epochs;
  std::optional<double> accuracy;  // the best, 0 to 1
  std::string val_loss;
  std::string seconds;
  std::vector<std::string> setting;  // a value for each option of ReportedSweep
  std::string reason;                // why it failed
};
struct ReportedSweep {
  std::string name;
  std::vector<std::string> options;   // that are swept
  std::vector<ReportedTrial> trials;  // the best first
  std::vector<ReportedRun> runs;      // of the best trials
};
// Whether the folder has a leaderboard.
bool is_sweep(const std::filesystem::path& folder);
// Throws Error(checkpoint) if the leaderboard cannot be read.
ReportedSweep read_reported_sweep(const std::filesystem::path& folder);

// The whole page; `runs` is not empty.
std::string report(std::span<const ReportedRun> runs);
std::string report(const ReportedSweep& sweep);

}  // namespace ddp
