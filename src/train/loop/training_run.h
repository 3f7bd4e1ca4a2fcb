// The complete state of a training run: weights, running statistics, optimizer state, position in the data, sums of the
// current epoch, best result. A checkpoint stores capture() and the two lists of tensors; restore() continues from
// them.
//
//   TrainingRun run(prepared);
//   if (resumed) run.restore(session, *resumed, folder->checkpoint());
//   ...
//   run.advance(samples);          // after each update
//   run.add_loss(loss, samples);
//   run.fetch();
//   folder->save(run.capture(), run.weights(), run.optimizer_state());
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "checkpoint/tensor_view.h"
#include "comm/communicator.h"
#include "job/mpi_session.h"
#include "optim/lookahead.h"
#include "optim/loss_scale.h"
#include "optim/optimizer.h"
#include "run_folder/run_folder.h"
#include "train/evaluation/evaluator.h"
#include "train/loop/prepared_run.h"
#include "train/step/batch_stream.h"

namespace ddp {

class TrainingRun {
 public:
  // A new run with the initial weights.
  explicit TrainingRun(PreparedRun& prepared);

  // Collective. Continues from `point`, whose tensors rank 0 reads from `checkpoint` (null on the other ranks). Throws
  // JointError(checkpoint) if the tensors do not match the network and the optimizer.
  void restore(const MpiSession& session, const ResumePoint& point, const Checkpoint* checkpoint);
  // Collective. Takes over the weights and the optimizer's state of `checkpoint` (null on ranks other than 0); the
  // position in the data stays.
  void roll_back(const Checkpoint* checkpoint);
  // Everything that a checkpoint stores besides the tensors.
  TrainingState capture() const;

  // Collective: copies all tensors to the host memory that weights() and optimizer_state() refer to; parameters that are
  // divided among the ranks, or the stages of a pipeline, become whole.
  void fetch();
  std::vector<TensorView> weights() const;
  // Those of weights() that are parameters, not running statistics.
  std::vector<TensorView> parameters() const;
  // Besides the weights, all that a checkpoint has; the shards' running statistics on rank 0 only.
  std::vector<TensorView> optimizer_state();
  // What of it all ranks have alike.
  std::vector<TensorView> common_state();

  Optimizer& optimizer() { return optimizer_; }
  LossScale& loss_scale() { return loss_scale_; }
  const LossScale& loss_scale() const { return loss_scale_; }
  // After this step, from 1: pulls weights and running statistics to the slow ones, if --lookahead wants it here and
  // `skip` does not forbid it (FlatMath::pull).
  void look_ahead(std::int64_t step, const double* skip);

  // Records one update by a global batch of so many samples.
  void advance(std::int64_t samples);
  // And its mean loss over them, which only rank 0 needs, before the next checkpoint.
  void add_loss(double loss, std::int64_t samples) { epoch_sums_.loss += loss * static_cast<double>(samples); }
  // The step was made without an update.
  void pass_over(std::int64_t samples);
  // Records an evaluation of the current weights; returns whether they are the best so far. NaN is never best.
  bool evaluated(const EvalResult& result);

  std::int64_t step() const { return step_; }  // completed updates
  Cursor cursor() const { return cursor_; }    // position of the next step
  bool evaluated_now() const { return evaluated_step_ == step_; }
  const EvalResult& last_evaluation() const { return *last_evaluation_; }
  bool ever_evaluated() const { return last_evaluation_.has_value(); }
  double best_accuracy() const { return best_accuracy_; }  // 0 to 1; -1: none measured
  std::int64_t best_step() const { return best_step_; }    // -1: none measured, or by an earlier process
  std::int64_t evaluated_step() const { return evaluated_step_; }
  bool saved_now() const { return saved_step_ == step_; }
  void set_saved() { saved_step_ = step_; }
  std::int64_t saved_step() const { return saved_step_; }      // -1: none yet
  std::int64_t resumed_step() const { return resumed_step_; }  // -1: a new run
  // False between the last step of an epoch and the logging of the epoch.
  bool epoch_logged() const { return epoch_logged_; }

  // Sums over the steps of the current or just completed epoch, including those of earlier processes.
  struct EpochSums {
    double loss = 0;  // over the samples
    std::int64_t samples = 0;
  };
  const EpochSums& epoch_sums() const { return epoch_sums_; }
  void finish_epoch();

 private:
  void read(const Checkpoint* checkpoint);
  void spread();
  void move_on(std::int64_t samples);
  void fetch(HostMirror& mirror);
  struct NamedMirror {
    std::string name;
    HostMirror mirror;
  };

  const Job& job_;
  const Inputs& inputs_;
  const Plan& plan_;
  Backend& backend_;
  State& state_;
  Engine& engine_;
  Communicator& ranks_;
  Optimizer optimizer_;
  LossScale loss_scale_;
  LookaheadConfig lookahead_;
  Memory slow_;  // the slow weights of --lookahead
  TrainingState constant_state_;
  std::vector<NamedMirror> host_state_;  // optimizer state, and slow weights
  std::int64_t step_ = 0;
  Cursor cursor_;
  std::int64_t samples_seen_ = 0;
  double best_accuracy_ = -1;
  std::int64_t best_step_ = -1;
  EpochSums epoch_sums_;
  bool epoch_logged_ = true;
  std::int64_t saved_step_ = -1;
  std::int64_t resumed_step_ = -1;
  std::optional<EvalResult> last_evaluation_;
  std::int64_t evaluated_step_ = -1;
};

// The parameters, by name, in host memory.
std::vector<TensorView> parameter_views(const Graph& graph, const State& state);
// These and the mean of the shards' running statistics, by name, in host memory.
std::vector<TensorView> weight_views(const Graph& graph, const State& state);

}  // namespace ddp
