// Why a run is as fast as it is: one verdict from a fixed list, its evidence in numbers, and cures with predicted gains.
//
//   const Explanation found = explain(timing, options);
//   found.cause;                         // Cause::input
//   found.cures[0].options;              // {{"workers", "3"}}
//   std::cout << describe(found);        // for ddp_train explain, which also gives explain() a probe
//   std::cout << brief(found);           // one or two lines, at the end of a run
//
// docs/explain.md lists the causes with their conditions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "explain/step_model.h"
#include "metrics/timing.h"
#include "options/options.h"

namespace ddp {

enum class Cause {
  none,  // nothing is wrong: the devices compute
  input,
  root_reduction,
  bandwidth,
  latency,
  late_bucket,
  small_batch,
  launch,
  pipeline,
  straggler,
  uneven_shards,
  evaluation,
  checkpoint,
  oversubscribed,
  throttled,
};
// "input-bound"
const char* cause_name(Cause cause);

struct Cure {
  std::vector<std::pair<std::string, std::string>> options;  // keys and values as on the command line
  double step_seconds = 0;                                   // predicted
  double speedup = 1;                                        // predicted, of images per second
  bool changes_training = false;                             // other results are to be expected
  bool lower_bound = false;                                  // not measured is what else gets faster

  // "--workers 3"
  std::string text() const;
};

struct Explanation {
  Cause cause = Cause::none;
  std::string headline;               // "the ranks wait for data 42% of the time"
  std::vector<std::string> evidence;  // a sentence each
  std::vector<Cure> cures;            // the best first
  std::string advice;                 // what to do where no option helps; may be empty
  std::vector<std::string> also;      // headlines of further causes above their thresholds
  StepModel model;
  bool pipeline = false;  // the ranks are stages, so that StepModel::imbalance is waiting for other stages
  double images_per_second = 0;
};

// A step to be measured, and what a rank does by itself in it, in seconds.
struct StepShape {
  std::int64_t batch_per_rank = 0;
  std::int64_t threads = 0;  // of each rank
  friend bool operator==(const StepShape&, const StepShape&) = default;
};
struct ProbedStep {
  double compute = 0;  // forward and backward
  double optimizer = 0;
};
// Measures steps of the run's model; nullopt if that is not possible here.
using StepProbe = std::function<std::optional<std::vector<ProbedStep>>(std::span<const StepShape>)>;

// `timing` has at least one step (timing.ranks[0].steps). The options are those of the run. The probe, if any, is called for cures
// whose gain the timing does not tell; without, these are lower bounds.
Explanation explain(const RunTiming& timing, const Options& options, const StepProbe& probe = {});

std::string describe(const Explanation& found);
// "input-bound: the ranks wait for data 42% of the time; --workers 3 would be 1.71x as fast (predicted)".
std::string brief(const Explanation& found);

}  // namespace ddp
