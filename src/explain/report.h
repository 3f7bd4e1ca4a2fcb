// One HTML file that shows one or several runs: curves, phases, ranks, verdict, confusion matrix, configurations. It needs
// no network and no scripts, adapts to light and dark and to narrow screens, and can be printed.
//
//   const std::vector<ReportedRun> runs = {read_reported_run("runs/a"), read_reported_run("runs/b")};
//   const std::string html = report(runs);
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "explain/verdict.h"
#include "metrics/read_log.h"

namespace ddp {

struct ReportedRun {
  std::string name;
  RunHistory history;
  std::optional<RunTiming> timing;            // not in runs of older versions
  std::map<std::string, std::string> config;  // the options by key
  Options options;
};

// Throws Error(checkpoint) if it is not the folder of a run.
ReportedRun read_reported_run(const std::filesystem::path& folder);

// The whole page; `runs` is not empty.
std::string report(std::span<const ReportedRun> runs);

}  // namespace ddp
