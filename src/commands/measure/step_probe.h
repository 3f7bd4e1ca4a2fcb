// Measures what the records of a run cannot tell: how long its step would take by itself with another batch or another
// number of threads. For explain, on the ranks of this job, in about three seconds.
//
//   StepProber prober(session, timing, options, "runs/a");
//   const Explanation found = explain(timing, options, prober.probe());
//   prober.problem();   // "the run is still going on": then nothing was measured
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "explain/verdict.h"
#include "job/mpi_session.h"
#include "metrics/timing.h"
#include "options/options.h"

namespace ddp {

// Whether a process trains in the folder at the moment, on this machine or possibly on another one.
bool run_goes_on(const std::filesystem::path& folder);

class StepProber {
 public:
  // Collective. Looks whether this job can measure the run in `folder`, which `timing` and `options` are of; they must
  // outlive this object.
  StepProber(const MpiSession& session, const RunTiming& timing, const Options& options,
             const std::filesystem::path& folder);

  // Collective when called; refers to this object.
  StepProbe probe();
  // Why nothing can be, or could be measured; the same on all ranks.
  const std::string& problem() const { return problem_; }

 private:
  std::string obstacle(const std::filesystem::path& folder) const;
  std::optional<std::vector<ProbedStep>> measure(std::span<const StepShape> shapes);
  ProbedStep time_step(const StepShape& shape);
  Options options_of(const StepShape& shape) const;

  const MpiSession& session_;
  const RunTiming& timing_;
  const Options& options_;
  std::string problem_;
};

}  // namespace ddp
