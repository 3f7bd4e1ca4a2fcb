// The training loop: steps, evaluations, checkpoints, and their logs and output.
//
//   TrainingRun run(prepared);
//   Trainer trainer(prepared, run, prepared.job.options, signals, rank0_output);
//   ExitCode code = trainer.run();   // completed, or stopped on request with all state saved
//
// Collective. Rank 0 owns the run folder; the other ranks only contribute their sums.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "gradients/reducer.h"
#include "job/signals.h"
#include "metrics/display/console.h"
#include "metrics/outliers.h"
#include "metrics/phases.h"
#include "optim/schedule.h"
#include "run_folder/run_folder.h"
#include "train/evaluation/evaluator.h"
#include "train/loop/prepared_run.h"
#include "train/loop/run_recorder.h"
#include "train/loop/training_run.h"
#include "train/nonfinite/non_finite.h"
#include "train/parallel/balance.h"
#include "train/step/batch_stream.h"
#include "train/step/step.h"

namespace ddp {

// Only on rank 0: the run folder, which must be open before Trainer::run(), and the console.
struct RunOutput {
  RunFolder& folder;
  Console& console;
};

class Trainer {
 public:
  // Trains starting from the state of `run`. `options` are those of the job, or for measurements with other lengths, and must
  // outlive this object. `output` is null except on rank 0; `signals` may be null.
  Trainer(PreparedRun& prepared, TrainingRun& run, const Options& options, Signals* signals, RunOutput* output);

  bool reduction_overlaps() const { return stepper_->reducer.overlaps(); }

  // What --balance on has gained, or "".
  std::string balance_text() const { return balance_ ? balance_->summary() : ""; }

  // Collective: what the ranks of a pipeline have sent, and how long they waited, or "".
  std::string pipeline_text() {
    if (stepper_->pipeline == nullptr || steps_here() == 0) return "";
    return stepper_->pipeline->summary(ranks_, steps_here(), clock_.totals().sum(), prepared_.plan.pipeline);
  }

  // What this rank has sent for linear layers that are divided among the ranks, or "".
  std::string split_text() const;

  // Throws JointError on all ranks: non_finite if the loss, the gradient or the state to be saved is not finite,
  // checkpoint if the weights of the ranks differ.
  ExitCode run();

  // Steps on this rank's share of a given global batch, outside of any epoch; for measurements. Returns whether all were
  // finite.
  [[nodiscard]] bool steps_on(const Batch& batch, std::int64_t count);

  std::int64_t total_steps() const { return total_steps_; }
  const PhaseClock& clock() const { return clock_; }
  PhaseTotals phase_totals() { return clock_.totals(); }
  // What facts_of() gives, completed by the caller; on rank 0, before run().
  RunFacts facts() const { return facts_of(prepared_, stepper_->reducer); }
  void set_facts(const RunFacts& facts) { recorder_.set_facts(facts); }
  // The last steps of this rank.
  std::vector<StepSample> last_steps() const { return recorder_.recorder().last_steps(); }
  // What the threads of this rank's loader read last, after run().
  std::vector<LoadSpan> last_loads() const;
  // The timing of the run, after run(); the same on all ranks but for the facts, which only rank 0 has.
  const RunTiming& timing() const { return timing_; }

 private:
  // These return false if a request to stop ended an evaluation; the checkpoint exists, and resuming repeats the
  // evaluation.
  [[nodiscard]] bool after_step(const StepResult& finished, double lr, std::int64_t samples);
  [[nodiscard]] bool end_epoch(bool saves);
  [[nodiscard]] bool finish_interrupted();
  // Whether the run is done with a part of an epoch, as --epochs demands.
  bool ends_within_epoch() const {
    const std::int64_t all = steps_of_epochs(options_.optimizer.epochs, prepared_.state.batch.steps_per_epoch);
    return run_.step() == all && total_steps_ == all && run_.cursor().step != 0;
  }
  [[nodiscard]] bool evaluate();
  bool is_logged(std::int64_t step) const;
  void log_step(const StepResult& result, double lr);
  void log_outliers(std::int64_t step, const StepResult& result);
  void note_result(std::int64_t step, const StepResult& result, double lr, std::int64_t samples);
  bool wants_results(std::int64_t step) const;
  void collect_results();
  void show_step(const StepResult& result, double lr);
  void write_evaluation(const EvalResult& result, bool best);
  bool evaluates_here() const;
  void log_epoch();
  void check_weights();
  // `last`: nothing follows, so that the checkpoint is written before this returns.
  void save(bool last);
  ExitCode leave(ExitCode code);
  std::string kept_text();
  void handle_non_finite(const StepResult& result, std::int64_t samples, double lr);
  NonFinite search(const Batch& batch, std::int64_t samples);
  std::string keep_batch(NonFinite& found, double lr);
  std::int64_t roll_back();
  Request requested();
  // The position of the next step to begin, behind those in flight.
  std::int64_t next_step() const { return run_.step() + std::ssize(begun_); }
  Cursor next_cursor() const { return {run_.cursor().epoch, run_.cursor().step + std::ssize(begun_)}; }
  bool waits_before(std::int64_t step) const;
  bool begins_another() const;
  std::size_t steps_to_begin() const;
  void begin_steps(std::size_t count);
  std::optional<StepResult> finish_step();
  bool lowers_loss_scale(const StepResult& result);
  void read_from_here();
  Batch next_batch();
  Batch read_again(std::int64_t samples);
  void load_steps();
  void rebalance();
  void rebuild();
  std::int64_t steps_with_these_images() const;
  StepInput input_of(std::int64_t step) const;
  void check_learning_rate(const StepInput& input);
  void recall_outliers();
  // Steps of this process.
  std::int64_t steps_here() const { return run_.step() - std::max<std::int64_t>(0, run_.resumed_step()); }
  float* step_parameters() const { return prepared_.state.parameters() + prepared_.plan.parallelism.held.begin; }
  // The displayed numbers, from 1.
  std::int64_t epoch_of(std::int64_t step) const { return (step - 1) / prepared_.state.batch.steps_per_epoch + 1; }
  std::int64_t epoch_of_last_step() const { return epoch_of(run_.step()); }

  // With the last one, which may be a part of an epoch.
  std::int64_t epochs_shown() const { return static_cast<std::int64_t>(std::ceil(options_.optimizer.epochs)); }

  PreparedRun& prepared_;
  TrainingRun& run_;
  Communicator& ranks_;
  Signals* signals_;
  RunOutput* output_;
  const Options& options_;
  PhaseClock clock_;
  std::int64_t total_steps_;
  Schedule schedule_;
  // The parts that depend on the size of the images, and on which shards this rank has.
  struct Stepper {
    Stepper(PreparedRun& prepared, const Options& options, const TrainingImages& images, TrainingRun& run,
            PhaseClock& clock);
    Reducer reducer;
    BatchStage stage;
    std::unique_ptr<Communicator> statistic_ranks;  // of synchronized batch normalisations; null: there are none
    std::unique_ptr<RankExchange> exchange;         // of divided linear layers; null: there are none
    std::unique_ptr<PipelineRun> pipeline;          // null: there is none
    TrainStep step;
  };
  // The batches from the cursor of the run on: of each step, or if the device keeps the images, of all steps of an epoch
  // together.
  struct Input {
    // `stage`: where the batches go.
    Input(const PreparedRun& prepared, const TrainingImages& images, const TrainingRun& run, std::int64_t steps,
          const BatchStage& stage);
    // The first step of a batch, both from 0.
    std::int64_t first_step_of(std::int64_t batch) const;
    // The counters of the loader, with steps in place of batches.
    LoaderCounts counts() const;
    std::int64_t at_a_time;  // steps of a batch at most
    std::int64_t begin;      // the first step
    std::int64_t end;        // behind the last one
    std::int64_t aligned;    // the first step of the epoch in which it begins, or `begin`
    std::int64_t taken = 0;  // batches
    BatchStream stream;
    Loader loader;
  };
  TrainingImages images_;         // of the cursor's epoch
  std::unique_ptr<Input> input_;  // ends after the engine, which waits for the steps that read its batches
  std::unique_ptr<Stepper> stepper_;
  std::optional<Balance> balance_;
  PhaseTotals measured_;        // up to the last step
  std::int64_t loaded_to_ = 0;  // the step behind those that the device has
  // A step in flight.
  struct BegunStep {
    double began = 0;  // its wait for data
    double lr = 0;
    std::int64_t samples = 0;
  };
  std::deque<BegunStep> begun_;
  std::size_t most_in_flight_;
  // Steps whose results rank 0 does not have yet (Note [Results that only rank 0 needs] in train/step/step.h).
  struct FinishedStep {
    std::int64_t step = 0;
    double lr = 0;
    std::int64_t samples = 0;
  };
  std::vector<FinishedStep> uncollected_;
  bool collects_;                // there are so many ranks that results are collected from several steps
  StepResult noted_;             // the last one that is complete, on rank 0
  double recorded_at_ = 0;       // when the last step was recorded
  Request dropped_;              // of steps that were dropped before the ranks acted on them
  bool stopping_ = false;        // no more steps begin
  bool checkpoint_due_ = false;  // on request, as soon as no step is in flight
  RunRecorder recorder_;
  RunTiming timing_;
  Evaluator evaluator_;
  std::int64_t checked_step_ = -1;
  std::int64_t non_finite_steps_ = 0;
  // What this process has done of the current epoch, for its rate.
  double epoch_began_ = 0;
  double epoch_seconds_ = 0;  // from that point to the end of the epoch
  std::int64_t epoch_samples_here_ = 0;
  std::int64_t samples_since_line_ = 0;
  double line_at_ = 0;   // when the last line was written, or training began
  double shown_at_ = 0;  // likewise of what is shown only
  bool line_written_ = false;
  // On rank 0.
  Outliers losses_;
  Outliers gradient_norms_;
  TrainingProgress shown_;  // with the speed of the last log interval
};

}  // namespace ddp
