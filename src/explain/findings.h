// The conditions of each cause and the cures for it; verdict.h chooses among what is found.
//
//   const RunView view(timing, options);
//   for (const FoundCause& finding : find_causes(view)) ...   // only causes above their thresholds
#pragma once

#include <fmt/core.h>

#include <string>
#include <vector>

#include "explain/verdict.h"

namespace ddp {

// "42%", and below ten percent "4.2%".
inline std::string percent(double fraction) {
  return fmt::format("{:.{}f}%", fraction * 100, fraction < 0.0995 ? 1 : 0);
}

// A run with what is derived from its timing.
struct RunView {
  RunView(const RunTiming& run_timing, const Options& run_options)
      : timing(run_timing),
        options(run_options),
        model(step_model(run_timing)),
        link(link_model(run_timing)),
        slowest(slowest_rank(run_timing)),
        ranks(static_cast<std::int64_t>(run_timing.ranks.size())) {}

  // Whether this rank reads images: of a pipeline, those of the first stage.
  bool loads(std::size_t rank) const { return static_cast<std::int64_t>(rank) % timing.facts.pipeline.stages == 0; }
  double share(double seconds) const { return model.seconds() > 0 ? seconds / model.seconds() : 0; }
  double images_per_second() const { return static_cast<double>(timing.facts.global_batch) / model.seconds(); }
  // A cure that changes only the time of a step.
  Cure cure(std::vector<std::pair<std::string, std::string>> settings, const StepModel& cured) const;

  const RunTiming& timing;
  const Options& options;
  StepModel model;
  LinkModel link;
  SlowestRank slowest;
  std::int64_t ranks;
};

struct FoundCause {
  Cause cause = Cause::none;
  double share = 0;  // of a step that the cause costs
  std::string headline = {};
  std::vector<std::string> evidence = {};
  std::vector<Cure> cures = {};
  std::string advice = {};
};

std::vector<FoundCause> find_causes(const RunView& view);
// The best first; those that change what is computed come last.
void sort_cures(std::vector<Cure>& cures);
// How well the devices compute, whatever the verdict.
std::vector<std::string> compute_evidence(const RunView& view);

}  // namespace ddp
