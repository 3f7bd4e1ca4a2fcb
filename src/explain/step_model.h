// The model of a step from which gains are predicted; docs/explain-model.md states and explains it.
//
//   const StepModel model = step_model(timing);
//   model.seconds();                       // of a step, with its share of evaluations and checkpoints
//   StepModel cured = model;
//   cured.data_wait = 0;
//   model.seconds() / cured.seconds();     // predicted speed-up
#pragma once

#include <cstdint>
#include <vector>

#include "metrics/timing.h"

namespace ddp {

// Seconds per step, unless said otherwise.
struct StepModel {
  double steps = 0;
  double data_wait = 0;  // of the rank that waits longest, as the others wait for it
  // Means over the ranks.
  double compute = 0;  // forward and backward
  double optimizer = 0;
  double other = 0;
  // Exposed communication: the network's part, that even the rank that waits least spends ...
  double communication = 0;
  // ... and what the ranks lose on average by waiting for slower ones. In a pipeline: for other stages, as PipelineWaits say.
  double imbalance = 0;
  double evaluation = 0;
  double checkpoint = 0;

  double seconds() const {
    return data_wait + compute + optimizer + other + communication + imbalance + evaluation + checkpoint;
  }
  // Without evaluations and checkpoints.
  double training() const { return seconds() - evaluation - checkpoint; }
  // What a rank does by itself.
  double own() const { return data_wait + compute + optimizer + other; }
};

// `timing` has at least one rank with at least one step.
StepModel step_model(const RunTiming& timing);

// Why the ranks of a pipeline wait, in seconds per step, as means over the ranks.
struct PipelineWaits {
  std::vector<double> stages;  // forward and backward of each, as means over its ranks
  double bubble = 0;     // the first micro-batch has not arrived, or the last one has left; if all stages are equal
  double imbalance = 0;  // the longest stage takes longer than the others
  double rest = 0;       // what is sent and summed, and ranks that are late, but not because of their data
};
// `timing` is that of a pipeline.
PipelineWaits pipeline_waits(const RunTiming& timing);

// The step of the run with a batch `factor` times as large, whose forward and backward take `batch_compute`. Loading grows with
// the batch, and as an epoch has fewer steps, so does a step's share of evaluations and checkpoints. A longer backward hides
// more of the sums that run meanwhile. Everything else is paid once a step.
StepModel with_batch(const RunTiming& timing, const StepModel& model, double factor, double batch_compute);

// The step of the run with --split-linear for timing.facts.divisible: the sums lose the bytes of these layers, the last of the
// network, from the first buckets on; their activations are exchanged at the speed of the sums, and nothing hides that.
StepModel with_divided_layers(const RunTiming& timing, const StepModel& model);

// The time of a sum over the ranks as latency + bytes / bandwidth, from the fastest sums of the run's buckets.
struct LinkModel {
  double bytes = 0;      // of all buckets together
  double seconds = 0;    // of all of them at their fastest
  double bandwidth = 0;  // bytes of gradients per second
};
// All zero for a single rank, and if the host does not sum.
LinkModel link_model(const RunTiming& timing);

// The data wait of a step if loading a batch takes `busy` seconds of one worker: workers read ahead while the rest of the
// step runs.
double predicted_data_wait(double busy, std::int64_t workers, double rest_of_step);

// The least time of a step on the busiest machine: the processor time in which its ranks compute and load, divided by its
// cores. Waiting by polling is not counted as far as the phases tell it from work.
double cpu_floor(const RunTiming& timing);

// The rank whose own work takes longest.
struct SlowestRank {
  std::size_t rank = 0;
  double seconds = 0;  // own work per step
  double others = 0;   // the mean of the other ranks; 0 if there are none
  double mean = 0;     // of all ranks
};
SlowestRank slowest_rank(const RunTiming& timing);

}  // namespace ddp
