// One training step on one rank: forward and backward over its logical shards, the overlapped reduction, the agreement
// of the ranks, the update.
//
//   TrainStep step({backend, network, reducer, optimizer, stage, clock}, plan, rank, /*record=*/true);
//   StepResult result =
//       step.run(parameters, batch, {.control = schedule.control(6), .samples = 256, .request = request});
//   if (!result.finite) ...   // on all ranks; no parameter was changed
//
// Note [A step without a stop]
// Everything from the batch's copy to the update is enqueued on the backend, including the agreement of the ranks: each
// writes its losses and flags to a message of doubles, the message is summed over the ranks, and the update reads from
// the sum whether to skip. The host waits once, at the end. So a GPU never waits for the host within a step, and the
// step can be recorded once and replayed as a whole; on the CPU each call executes immediately.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "data/pipeline/loader.h"
#include "gradients/reducer.h"
#include "metrics/phases.h"
#include "model/network.h"
#include "optim/optimizer.h"
#include "options/batch.h"
#include "train/batch_stage.h"
#include "train/pipeline_run.h"
#include "train/shard_statistics.h"
#include "train/split_linear.h"

namespace ddp {

// Requests to a rank by signals; the ranks agree on the union.
struct Request {
  bool stop = false;
  bool checkpoint = false;
};

struct StepInput {
  StepControl control;
  std::int64_t samples = 0;  // of the global batch
  Request request;
};

// Hashes that tell where two runs differ (StepRecord in metrics/run_log.h). Those of samples and pixels are sums over the
// samples of all ranks, and independent of the number of ranks.
struct StepHashes {
  std::uint64_t samples = 0;
  std::uint64_t pixels = 0;
  std::uint64_t statistics = 0;  // of this rank's first shard
  std::uint64_t weights = 0;
};

struct StepResult {
  double loss = 0;           // mean over the global batch
  std::int64_t correct = 0;  // correct predictions in the global batch, before the update
  double grad_norm = 0;      // L2 norm of the gradient of the mean loss, before clipping; NaN: not computed
  StepHashes hashes;
  bool finite = true;  // whether loss and gradient are finite; if not, the weights were not updated
  Request request;     // the same on all ranks
};

// The components of a step, which must outlive it.
struct StepParts {
  Backend& backend;
  Network& network;
  Reducer& reducer;
  Optimizer& optimizer;
  BatchStage& stage;  // for plan.per_rank samples
  PhaseClock& clock;
  const ShardStatistics* statistics = nullptr;  // null: the network has no batch normalisation
  bool fingerprints = true;                     // compute StepResult::hashes and grad_norm
  SumOverShards sums = {};                      // for a synchronized batch normalisation; empty: none
  const ParameterSlices* slices = nullptr;      // of divided linear layers; null: all parameters are whole
  ShardExchange* exchange = nullptr;            // for these layers
  // For a pipeline, whose part of the network, of the flat buffers and of the reducer's ranks all others then are; null:
  // there is none.
  PipelineRun* pipeline = nullptr;
};

// The same bits on all ranks; empty without ranks. The ranks must outlive it.
SumOverShards sums_in_rank_order(Communicator* ranks);

class TrainStep {
 public:
  // With `record`, whole steps are recorded if backend and reducer support it. `rank`: of the plan, which in a pipeline is
  // the replica.
  TrainStep(const StepParts& parts, BatchPlan plan, int rank, bool record);

  // `parameters` is memory of the backend, the same in every call.
  StepResult run(float* parameters, const Batch& loaded, const StepInput& input);

 private:
  // The message of a step: a loss sum for each shard, then these slots, then what is not summed: the StepControl, the
  // sums of the gradient's squares, and some weights and running statistics.
  enum Slot : std::size_t { correct, broken, stop, checkpoint, sample_hash, pixel_hash, summed };
  // Marks in the queue that divide the time of a step; each is the beginning of its phase.
  enum Mark : std::size_t { begin_mark, last_shard_mark, backward_mark, reduction_mark, optimizer_mark, end_mark };

  double* device(Slot slot) const { return message_.at<double>(0) + plan_.shards + slot; }
  double& host(Slot slot) const { return *(host_message_.at<double>(0) + plan_.shards + slot); }
  std::size_t summed_bytes() const { return (static_cast<std::size_t>(plan_.shards) + Slot::summed) * sizeof(double); }
  std::size_t squares_at() const { return aligned_bytes(summed_bytes() + sizeof(StepControl)); }
  std::size_t sample_at(std::size_t which) const;
  void hash_batch(const Batch& batch, std::int64_t samples);
  std::size_t squares_count() const { return kSquareSums * std::max<std::size_t>(1, held_.size()); }
  void enqueue_square_sums();
  void sum_message(double* values, std::size_t count);
  void set_exchange(std::int64_t round, std::int64_t samples);
  void enqueue_fingerprint(const float* parameters);
  void enqueue(float* parameters, std::int64_t samples);
  void compute(const float* parameters, std::int64_t samples);
  void forward(Network& network, const float* parameters, std::int64_t shard, std::int64_t samples);
  void backward(Network& network, const float* parameters);
  void replay_or_enqueue(float* parameters, const StepInput& input);
  StepResult result_of(const StepInput& input) const;
  void split_time(double seconds);
  void split_pipeline_time();

  Backend& backend_;
  Network& network_;
  Reducer& reducer_;
  Optimizer& optimizer_;
  BatchStage& stage_;
  PhaseClock& clock_;
  const ShardStatistics* statistics_;
  BatchPlan plan_;
  int rank_;
  std::size_t elements_;  // of the flat gradient
  Memory message_;
  Memory host_message_;
  std::vector<Range> held_;     // of this rank, of divided parameters
  std::vector<Range> counted_;  // whose squares this rank adds to the gradient norm
  std::size_t message_bytes_;   // on the device
  Range hashed_;                // weights of the flat buffer, the last ones
  std::size_t hashed_statistics_;
  bool fingerprints_;
  SumOverShards sums_;
  ShardExchange* exchange_;
  PipelineRun* pipeline_;
  bool joint_squares_;  // each rank counts some of the gradient's squares
  bool record_;
  bool warm_ = false;  // a whole step was enqueued without recording before
  std::unique_ptr<Recording> recording_;
};

}  // namespace ddp
