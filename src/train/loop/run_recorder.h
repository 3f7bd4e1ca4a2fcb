// Records a training run for its logs and for ddp_train explain: per-rank times, RUN/steps.csv, RUN/timing.json.
//
//   RunRecorder recorder(reducer, folder.get());   // null except on rank 0
//   recorder.step({.step = 7, .begin = now(), .phases = clock.totals(), .loader = {}});
//   recorder.log(/*step=*/7, result, /*lr=*/0.1);
//   RankPhases sampled = recorder.sample(ranks, clock.totals(), run.step());             // collective, at each log line
//   RunTiming timing = recorder.finish(ranks, clock.totals(), run.step(), /*complete=*/true);   // collective, at the end
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/pipeline/loader.h"
#include "gradients/reducer.h"
#include "metrics/logs/run_log.h"
#include "metrics/recorder.h"
#include "metrics/timing.h"
#include "run_folder/run_folder.h"
#include "train/loop/prepared_run.h"
#include "train/step/step.h"

namespace ddp {

class RunRecorder {
 public:
  // `folder` is null except on rank 0. Both must outlive this object. Records nothing unless `enabled`. In pipelines the
  // ranks do not have the `same_buckets`.
  RunRecorder(const Reducer& reducer, RunFolder* folder, bool enabled = true, bool same_buckets = true);
  // Another reducer from the next step on, with another loader.
  void follow(const Reducer& reducer);
  // Samples the clock of the GPU at `pci_id` from now on, if its driver reports it.
  void watch_gpu(const std::string& pci_id);
  // Only rank 0 needs them; without, no timing.json is written.
  void set_facts(RunFacts facts) { facts_ = std::move(facts); }

  // The network of the steps to come, whose floating-point operations the utilization is about.
  void compute_on(const Graph& graph);

  // With `sum_times` the reducer's last sums are this step's.
  void step(const StepInfo& info, bool sum_times = true);
  // Its row of steps.csv, on rank 0.
  void log(std::int64_t step, const StepResult& result, double lr);
  void count_evaluation() { ++evaluations_; }
  void count_checkpoint() { ++checkpoints_; }

  // Collective. On rank 0, the phases of all ranks since the last sample; empty if that is too recent.
  RankPhases sample(Communicator& ranks, const PhaseTotals& phases, std::int64_t step);
  // Collective. The timing of the whole run, on all ranks.
  RunTiming finish(Communicator& ranks, const PhaseTotals& phases, std::int64_t step, bool complete);

  // Utilization and memory of the run so far; nullopt where the peak of the device is not known.
  std::optional<double> mfu(double images_per_second) const;
  std::optional<double> memory() const;
  const Recorder& recorder() const { return recorder_; }

 private:
  RunTiming gather(Communicator& ranks, const PhaseTotals& phases, std::int64_t step);
  void write(const RunTiming& timing);

  const Reducer* reducer_;
  RunFolder* folder_;
  bool enabled_;
  bool same_buckets_;
  Recorder recorder_;
  std::optional<RunFacts> facts_;
  double flops_per_sample_ = 0;  // of the network that computes now
  // The mean over all steps so far.
  struct FlopsPerSample {
    double sum = 0;
    double steps = 0;
    void add(double flops) {
      sum += flops;
      ++steps;
    }
  };
  FlopsPerSample flops_;
  std::vector<RankTiming> last_;  // of the last gather
  std::int64_t evaluations_ = 0;
  std::int64_t checkpoints_ = 0;
  double written_at_ = -1e9;
  bool write_failed_ = false;
};

// What is known of a run before its first step; who and where the ranks are is left empty.
RunFacts facts_of(const PreparedRun& prepared, const Reducer& reducer);

// The loader's counters as the recorder takes them.
LoaderCounts loader_counts(const LoaderStatistics& statistics);

}  // namespace ddp
