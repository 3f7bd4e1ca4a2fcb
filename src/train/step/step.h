// One training step on one rank: forward and backward over its logical shards, the overlapped reduction, the agreement
// of the ranks, the update.
//
//   TrainStep step({backend, network, reducer, optimizer, stage, clock}, plan, rank, {.record = true, .ahead = 4});
//   step.begin(parameters, batch, {.control = schedule.control(6), .samples = 256, .request = request});
//   step.begin(parameters, next_batch, {.control = schedule.control(7), .samples = 256, .request = request});
//   StepResult result = step.finish();   // of the first of them
//   if (!result.finite) step.resume();   // on all ranks; no parameter was changed, neither by the second
//
// Note [A step without a stop]
// Everything from the batch's copy to the update is enqueued on the backend, including the agreement of the ranks: each
// writes its losses and flags to a message of doubles, the message is summed over the ranks, and the update reads from
// the sum whether to skip. So a GPU never waits for the host within a step, and the step can be recorded once and
// replayed as a whole; on the CPU each call executes immediately.
//
// Note [Steps ahead]
// Nor does it wait between steps: up to StepSettings::ahead steps have begun when the host reads the result of the first.
// What differs between them lies in as many slots (the batch, the host's message, marks, the recording), of which step n
// uses n modulo their number, so that nothing is overwritten that a step in flight still reads. The batch of a step is
// therefore copied to the device while earlier steps compute (DeviceContext::uploads()), not within the recording.
//
// A loss or gradient that is not finite is marked in the message on the device, and the mark stays there: it is an input
// and an output of each step. From that step on no update changes anything (nor do copies and pulls with
// TrainStep::halted()) until the host, which learns of it up to `ahead` steps later, calls resume(). So what it finds is
// as it was before that step, whatever has begun since.
//
// If the stage holds the batches of an epoch (Note [Steps driven by the device] in train/step/batch_stage.h), the messages with
// which its steps begin, learning rates among them, are on the device too:
//
//   step.load(batch, {{schedule.control(6), 256}, {schedule.control(7), 200}});
//   step.begin_loaded(parameters, request);   // the first of them
//   step.begin_loaded(parameters, {});
//
// Nothing comes from the host between such steps, so StepSettings::together of them can be one recording and begin at once.
// Each has its own slot and message, which tells whether it was finite. The host waits for all of them when it reads the first
// result, to which their time is added.
//
// Note [Results that only rank 0 needs]
// What all ranks must know of a step is whether it was finite, requests, and the gradient's norm. The losses of the shards, of
// which there are as many as ranks, and what is counted and hashed, only rank 0 writes down. With StepSettings::keeps_results
// each rank keeps its own of these, and some steps' go to rank 0 together:
//
//   StepResult own = step.finish();                          // with the loss of this rank's shards only
//   for (const StepResult& result : step.collect(ranks)) ... // collective; complete, on rank 0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "comm/host_share.h"
#include "data/pipeline/loader.h"
#include "gradients/reducer.h"
#include "metrics/phases.h"
#include "model/network.h"
#include "optim/optimizer.h"
#include "options/batch.h"
#include "train/parallel/pipeline_run.h"
#include "train/parallel/split_linear.h"
#include "train/step/batch_stage.h"
#include "train/step/shard_statistics.h"

namespace ddp {

// Requests to a rank by signals; the ranks agree on the union.
struct Request {
  bool stop = false;
  bool checkpoint = false;

  friend bool operator==(const Request&, const Request&) = default;
};

struct StepInput {
  StepControl control;
  std::int64_t samples = 0;  // of the global batch
  Request request;
};

// Hashes that tell where two runs differ (StepRecord in metrics/logs/run_log.h). Those of samples and pixels are sums over the
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
  bool finite = true;  // whether loss and gradient of this step and those before it since resume() are finite
  Request request;     // the same on all ranks
};

// The components of a step, which must outlive it.
struct StepParts {
  Backend& backend;
  Network& network;
  Reducer& reducer;
  Optimizer& optimizer;
  BatchStage& stage;  // for plan.per_rank samples and StepSettings::ahead batches
  PhaseClock& clock;
  ShardStatistics* statistics = nullptr;    // null: the network has no batch normalisation
  bool fingerprints = true;                 // compute StepResult::hashes and grad_norm
  SumOverShards sums = {};                  // for a synchronized batch normalisation; empty: none
  const ParameterSlices* slices = nullptr;  // of divided linear layers; null: all parameters are whole
  ShardExchange* exchange = nullptr;        // for these layers
  // For a pipeline, whose part of the network, of the flat buffers and of the reducer's ranks all others then are; null:
  // there is none.
  PipelineRun* pipeline = nullptr;
  // Parameters shared by this host's ranks; null: each rank updates all of its own.
  HostShare* share = nullptr;
};

// The upper bound of StepSettings::ahead.
inline constexpr std::size_t kMostStepsAhead = 16;

struct StepSettings {
  bool scales_loss = false;  // by StepControl::loss_scale
  bool record = false;       // record whole steps if backend and reducer support it
  std::size_t ahead = 1;     // steps that may have begun when the host reads the result of the first; 1 in a pipeline
  std::size_t together = 1;  // loaded steps that may begin at once, up to `ahead`
  // If the ranks count parts of the gradient's squares, the sums of each range of a rank are in the message, and added there.
  bool squares_by_range = false;
  bool keeps_results = false;
};

// The same bits on all ranks; empty without ranks. The ranks must outlive it.
SumOverShards sums_in_rank_order(Communicator* ranks);

class TrainStep {
 public:
  // `rank`: of the plan, which in a pipeline is the replica.
  TrainStep(const StepParts& parts, BatchPlan plan, int rank, const StepSettings& settings);
  // Waits for the steps in flight, which use its memory.
  ~TrainStep();
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  // Enqueues a step. `parameters` is memory of the backend, the same in every call. At most StepSettings::ahead steps
  // are in flight, whose pixels must stay valid (BatchStage).
  void begin(float* parameters, const Batch& loaded, const StepInput& input);
  // For a stage that takes the batches of steps: copies those of some steps, one after the other, and what else these begin
  // with, except for requests. All but the last have a full batch. No step may be in flight.
  void load(const Batch& batches, std::vector<StepInput> inputs);
  // Enqueues the next of these steps, after the last one again the first: one of them, or together(). At most
  // StepSettings::ahead steps are in flight.
  void begin_loaded(float* parameters, Request request, std::size_t count = 1);
  std::size_t together() const { return together_; }
  // The result of the first step in flight, for which the host waits.
  StepResult finish();
  std::size_t in_flight() const { return begun_ - finished_; }
  // Collective, with keeps_results: on rank 0, the results of the steps that have finished since the last call, as all ranks
  // together have them; none on the others.
  std::vector<StepResult> collect(Communicator& ranks);
  // The last finished step is to be repeated.
  void forget_last();
  // Both, if no other step is in flight.
  StepResult run(float* parameters, const Batch& batch, const StepInput& input);

  // Device memory that load() needs for an epoch, besides that of the stage.
  static std::size_t loaded_bytes(const BatchPlan& plan);

  // In the backend's memory: not 0 from a step on that was not finite, until resume().
  const double* halted() const { return device(Slot::broken); }
  // After a step that was not finite: drops the steps in flight, which have changed nothing, and lets those that begin
  // from here on update again. Running statistics are as before that step. Returns what the dropped steps were to pass on.
  Request resume();

 private:
  // The message of a step: these slots, a loss sum for each shard, then what is not summed: the sums of the gradient's
  // squares, the StepControl, and some weights and running statistics. `broken` stays on the device. From `correct` on it
  // is known before the step.
  enum Slot : std::size_t { broken, stop, checkpoint, correct, sample_hash, pixel_hash, losses };
  // Events in the queue that divide the time of a step; each is the beginning of its phase. The last is behind it all.
  enum Mark : std::size_t {
    begin_mark,
    last_shard_mark,
    backward_mark,
    reduction_mark,
    optimizer_mark,
    meeting_mark,
    end_mark,
    done_mark,
    marks
  };

  struct InFlight {
    StepInput input;
    Memory message;  // of the host
    std::array<std::unique_ptr<DeviceEvent>, Mark::marks> events;
    std::unique_ptr<Recording> recording;  // of a step with a full batch
    std::unique_ptr<Recording> several;    // of together() such steps, of which it is the first
    std::size_t last = 0;                  // of the steps that began at once with it
  };

  double* device(Slot slot) const { return message_.at<double>(0) + slot; }
  std::size_t slot_of(std::size_t step) const { return step % slots_.size(); }
  InFlight& current() { return slots_[slot_of(begun_)]; }
  // Whether a step has the marks that divide its time. A recorded mark is a node of the CUDA graph, and kernels on both sides
  // of it wait for it, so only the steps of the first slot have marks; the others are taken to be divided as the last of
  // these. With several ranks, where any step may wait for another rank, all have them.
  bool marked(std::size_t step) const { return slot_of(step) == 0 || plan_.ranks > 1; }
  void mark(Mark place) {
    if (marked(begun_)) backend_.queue().mark(*current().events[place]);
  }
  double seconds_between(std::size_t step, Mark from, Mark to) const;
  PhaseTotals device_seconds(std::size_t step) const;
  // Values in front of those that are not summed; with keeps_results only those in front of `correct` are, and the squares.
  std::size_t summed() const { return Slot::losses + static_cast<std::size_t>(plan_.shards); }
  std::size_t squares_at() const { return summed() * sizeof(double); }
  std::size_t control_at() const { return squares_at() + squares_count() * sizeof(double); }
  std::size_t sample_at(std::size_t which) const;
  void write_message(double* message, const Batch& batch, const StepInput& input) const;
  void hash_batch(double* message, const Batch& batch, std::int64_t samples) const;
  void pass_on(Request request);
  void launch(float* parameters, std::size_t count, double began);
  void enqueue_begin(std::int64_t samples);
  std::size_t squares_count() const { return kSquareSums * std::max<std::size_t>(1, square_ranges_); }
  void add_square_sums(const Range& range);
  void enqueue_square_sums();
  NonfiniteCheck nonfinite_check() const;
  void sum_over_ranks();
  void sum_message(double* values, std::size_t count);
  void set_exchange(std::int64_t round, std::int64_t samples);
  void enqueue_report(const float* parameters);
  void enqueue(float* parameters, std::int64_t samples);
  void enqueue_several(float* parameters, std::size_t count);
  void compute(const float* parameters, std::int64_t samples);
  void forward(Network& network, const float* parameters, std::int64_t shard, std::int64_t samples);
  void backward(Network& network, const float* parameters);
  void replay_or_enqueue(float* parameters, std::size_t count);
  StepResult result_of(const InFlight& step) const;
  void sum_agreement();
  void keep_result(const InFlight& step, const StepResult& result);
  std::size_t kept_of_step() const;
  void split_time(double seconds);
  void split_pipeline_time();

  Backend& backend_;
  Network& network_;
  Reducer& reducer_;
  Optimizer& optimizer_;
  BatchStage& stage_;
  PhaseClock& clock_;
  ShardStatistics* statistics_;
  BatchPlan plan_;
  int rank_;
  Memory message_;  // of the step that runs; on the device
  std::vector<InFlight> slots_;
  // Loaded steps: what they begin with, of which `next_` is the next, their messages, and the last request passed on.
  std::vector<StepInput> loaded_;
  std::size_t next_ = 0;
  std::vector<double> written_;
  Staging messages_;
  Memory requests_;
  Request request_;
  std::size_t begun_ = 0;  // steps so far
  std::size_t finished_ = 0;
  std::size_t timed_ = 0;  // steps whose time is in the phases
  std::size_t together_;
  double host_seconds_ = 0;     // in begin() since the last finish()
  PhaseTotals step_seconds_;    // of the last step with marks
  std::vector<Range> held_;     // of this rank, of divided parameters
  std::vector<Range> counted_;  // whose squares this rank adds to the gradient norm
  std::size_t square_ranges_;   // with sums of their own in the message; so many at most on any rank
  std::array<double, kSquareSums> range_squares_{};
  std::size_t message_bytes_;  // on the device
  Range hashed_;               // weights of the flat buffer, the last ones
  std::size_t hashed_statistics_;
  bool fingerprints_;
  SumOverShards sums_;
  ShardExchange* exchange_;
  PipelineRun* pipeline_;
  HostShare* share_;
  bool scales_loss_;
  bool keeps_results_;
  std::vector<double> agreement_;     // what is summed, if it does not lie together
  std::vector<double> kept_;          // of this rank, for collect(): correct, hashes and losses of each step
  std::vector<StepResult> kept_own_;  // the same steps, with the samples of each
  std::vector<std::int64_t> kept_samples_;
  bool joint_squares_;  // each rank counts some of the gradient's squares
  bool record_;
  bool warm_ = false;  // a whole step was enqueued without recording before
};

}  // namespace ddp
