// The training loop: steps, evaluations, checkpoints, and what is written and shown about them.
//
//   TrainingRun run(experiment, ranks);
//   Trainer trainer(experiment, run, ranks, signals, rank0_output);
//   ExitCode code = trainer.run();   // done, or stopped on request with all state saved
//
// Collective. Rank 0 owns the run folder; the other ranks only contribute their sums.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "gradients/reducer.h"
#include "job/signals.h"
#include "metrics/console.h"
#include "metrics/phases.h"
#include "optim/schedule.h"
#include "run_folder/run_folder.h"
#include "train/batch_stream.h"
#include "train/evaluator.h"
#include "train/experiment.h"
#include "train/step.h"
#include "train/training_run.h"

namespace ddp {

// What only rank 0 has: the run folder, open by the time of Trainer::run(), and the person watching.
struct RunOutput {
  RunFolder& folder;
  Console& console;
};

class Trainer {
 public:
  // Trains from where `run` stands. `output` is null on all ranks but 0; `signals` may be null.
  Trainer(Experiment& experiment, TrainingRun& run, Communicator& ranks, Signals* signals, RunOutput* output);

  bool reduction_overlaps() const { return reducer_.overlaps(); }

  // Throws JointError on all ranks: non_finite where the loss, the gradient, or what would be saved is no longer a
  // number, checkpoint where the ranks' weights are not the same.
  ExitCode run();

  // One step on a given whole global batch's share of this rank, outside of any epoch: for measurements.
  StepResult step_on(const Batch& batch);

  std::int64_t total_steps() const { return total_steps_; }
  const PhaseClock& clock() const { return clock_; }
  PhaseTotals phase_totals() { return clock_.totals(); }

 private:
  // These are false where a request to stop ended an evaluation; the checkpoint is there, and resuming makes up for it.
  [[nodiscard]] bool after_step(const StepResult& result, double lr, std::int64_t samples);
  [[nodiscard]] bool end_epoch(bool saves);
  [[nodiscard]] bool finish_interrupted();
  [[nodiscard]] bool evaluate();
  void log_step(const StepResult& result, double lr);
  bool evaluates_here() const;
  void log_epoch();
  void check_weights();
  void save();
  std::string kept_text() const;
  [[noreturn]] void stop_non_finite(const StepResult& result) const;
  Request requested();
  // As people count, from 1.
  std::int64_t epoch_of_last_step() const { return (run_.step() - 1) / experiment_.batch.steps_per_epoch + 1; }

  Experiment& experiment_;
  TrainingRun& run_;
  Communicator& ranks_;
  Signals* signals_;
  RunOutput* output_;
  const OptimizerOptions& options_;
  PhaseClock clock_;
  std::int64_t total_steps_;
  Schedule schedule_;
  Reducer reducer_;
  BatchStage stage_;
  TrainStep train_step_;
  Evaluator evaluator_;
  std::int64_t checked_step_ = -1;
  // Of this process: what the rate of the current epoch is computed from.
  double epoch_began_ = 0;
  double epoch_seconds_ = 0;  // from there to the end of the epoch
  std::int64_t epoch_samples_here_ = 0;
  std::int64_t samples_since_line_ = 0;
};

// Updates of a whole run: epochs, cut short by --max-steps.
std::int64_t total_steps_of(const OptimizerOptions& options, const BatchPlan& plan);

}  // namespace ddp
