// The training loop: steps, evaluations, checkpoints, and what is written and shown about them.
//
//   Trainer trainer(experiment, ranks, topology, signals, rank0_output, start);
//   ExitCode code = trainer.run();   // done, or stopped on request with all state saved
//
// Collective. Rank 0 owns the run folder; the others hand it nothing but their sums.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "gradients/gradient_reducer.h"
#include "metrics/console.h"
#include "metrics/phases.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "run_folder/run_folder.h"
#include "runtime/signals.h"
#include "train/batch_stream.h"
#include "train/evaluator.h"
#include "train/experiment.h"
#include "train/step.h"

namespace ddp {

// What only rank 0 has: the run folder, open by the time of Trainer::run(), and the person watching.
struct RunOutput {
  RunFolder& folder;
  Console& console;
};

class Trainer {
 public:
  // `output` is null on all ranks but 0; `signals` may be null. With `resumed` training goes on from that state, whose
  // tensors are read through parameter_views() and optimizer_views() and sent to all ranks by broadcast_tensors().
  Trainer(Experiment& experiment, Communicator& ranks, Signals* signals, RunOutput* output,
          const std::optional<ResumePoint>& resumed);

  Optimizer& optimizer() { return optimizer_; }
  bool reduction_overlaps() const { return reducer_->overlaps(); }
  // Names and places of the parameters and of the optimizer's state in the host's mirrors, as checkpoints store them.
  static std::vector<TensorView> parameter_views(const Experiment& experiment);
  std::vector<TensorView> optimizer_views();
  // Gives what rank 0's mirrors hold to all ranks and devices.
  void broadcast_tensors();

  // Throws JointError on all ranks: non_finite where the loss, the gradient, or what would be saved is no longer a
  // number, checkpoint where the ranks' weights are not the same.
  ExitCode run();

  // One step on a given whole global batch's share of this rank, outside of any epoch: for measurements.
  StepResult step_on(const Batch& batch);

  std::int64_t total_steps() const { return total_steps_; }
  // Updates done so far, those of a resumed run included.
  std::int64_t steps_done() const { return step_; }
  const PhaseClock& clock() const { return clock_; }
  PhaseTotals phase_totals() { return clock_.totals(); }

 private:
  struct EpochSums {
    double loss = 0;  // over the samples
    std::int64_t samples = 0;
    std::int64_t samples_here = 0;  // of this process, since `began`
    double began = 0;
    double seconds = 0;  // from there to the end of the epoch
  };

  void after_step(const StepResult& result, double lr, std::int64_t samples);
  void log_step(const StepResult& result, double lr);
  void end_epoch(bool saves);
  bool evaluates_here() const;
  void log_epoch();
  void finish_interrupted();
  void check_weights();
  void evaluate();
  void save();
  std::string kept_text() const;
  [[noreturn]] void stop_non_finite(const StepResult& result) const;
  Request requested();
  // As people count, from 1.
  std::int64_t epoch_of_last_step() const { return (step_ - 1) / experiment_.batch.steps_per_epoch + 1; }

  Experiment& experiment_;
  Communicator& ranks_;
  Signals* signals_;
  RunOutput* output_;
  const OptimizerOptions& options_;
  PhaseClock clock_;
  Optimizer optimizer_;
  struct NamedMirror {
    std::string name;
    HostMirror mirror;
  };
  std::vector<NamedMirror> host_state_;  // of the optimizer
  std::int64_t total_steps_;
  Schedule schedule_;
  std::unique_ptr<GradientReducer> reducer_;
  BatchStage stage_;
  TrainStep train_step_;
  Evaluator evaluator_;
  // Where training stands.
  std::int64_t step_ = 0;  // updates done
  Cursor cursor_;
  std::int64_t samples_seen_ = 0;
  double best_accuracy_ = -1;
  std::int64_t saved_step_ = -1;
  std::int64_t checked_step_ = -1;
  EpochSums epoch_sums_;
  bool epoch_logged_ = true;  // of the epoch that ended with the last step, if one did
  std::int64_t samples_since_line_ = 0;
  std::optional<EvalResult> last_evaluation_;
  std::int64_t evaluated_step_ = -1;
};

// Updates of a whole run: epochs, cut short by --max-steps.
std::int64_t total_steps_of(const OptimizerOptions& options, const BatchPlan& plan);

}  // namespace ddp
