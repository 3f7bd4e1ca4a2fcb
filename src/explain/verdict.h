// Why a run is as fast as it is: one verdict from a fixed list, its evidence in numbers, and cures with predicted gains.
//
//   const Explanation found = explain(timing, options);
//   found.cause;                         // Cause::input
//   found.cures[0].options;              // {{"workers", "3"}}
//   std::cout << describe(found);        // for ddp_train explain
//   std::cout << brief(found);           // one or two lines, at the end of a run
//
// docs/explain.md lists the causes with their conditions.
#pragma once

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
  bool lower_bound = false;                                  // the model leaves out what else gets faster

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
  double images_per_second = 0;
};

// `timing` has at least one step (timing.ranks[0].steps). The options are those of the run.
Explanation explain(const RunTiming& timing, const Options& options);

std::string describe(const Explanation& found);
// "input-bound: the ranks wait for data 42% of the time; --workers 3 would be 1.71x as fast (predicted)".
std::string brief(const Explanation& found);

}  // namespace ddp
