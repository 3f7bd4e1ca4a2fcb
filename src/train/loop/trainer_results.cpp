// What a trainer writes down of each step: on rank 0, as soon as it has what all ranks know.
#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "metrics/logs/read_log.h"
#include "train/loop/trainer.h"

namespace ddp {
namespace {

// Steps whose results go to rank 0 together.
constexpr std::size_t kStepsOfResults = 8;

}  // namespace

// On rank 0, what a step has left.
void Trainer::note_result(std::int64_t step, const StepResult& result, double lr, std::int64_t samples) {
  recorder_.log(step, result, lr);
  if (!result.finite) return;
  run_.add_loss(result.loss, samples);
  if (output_ != nullptr) log_outliers(step, result);
}

// Whether what follows a step needs the results so far; the same on all ranks.
bool Trainer::wants_results(std::int64_t step) const {
  const OutputOptions& options = options_.output;
  return uncollected_.size() >= kStepsOfResults || step % options.log_interval == 0 || step == total_steps_ ||
         (options.checkpoint_every > 0 && step % options.checkpoint_every == 0) || checkpoint_due_ || stopping_ ||
         ends_within_epoch();
}

// Collective, where results are collected from several steps.
void Trainer::collect_results() {
  if (uncollected_.empty()) return;
  const std::vector<StepResult> results = stepper_->step.collect(ranks_);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const FinishedStep& step = uncollected_[i];
    note_result(step.step, results[i], step.lr, step.samples);
  }
  if (!results.empty()) noted_ = results.back();
  uncollected_.clear();
}

void Trainer::log_outliers(std::int64_t step, const StepResult& result) {
  const auto log = [this, step](const char* quantity, const char* name, const std::optional<Outlier>& found) {
    if (!found) return;
    output_->folder.log().write(OutlierRecord{step, epoch_of(step), quantity, *found});
    log_warning(
        "step {} (epoch {}): the {} of {:.4g} stands out, {:.0f} standard deviations above the median {:.4g} of the {} "
        "steps before",
        step, epoch_of(step), name, found->value, found->z, found->median, Outliers::kWindow);
  };
  log("loss", "loss", losses_.note(result.loss));
  log("gradient_norm", "gradient norm", gradient_norms_.note(result.grad_norm));
}

// What the steps before a resume were is compared with the next ones as if there had been no interruption.
void Trainer::recall_outliers() {
  std::vector<StepRecord> steps;
  try {
    steps = read_steps(output_->folder.path());
  } catch (const Error&) {
    return;  // of an older version, or the checkpoint is from another folder
  }
  constexpr std::size_t kEnough = 8 * Outliers::kWindow;
  for (std::size_t i = steps.size() > kEnough ? steps.size() - kEnough : 0; i < steps.size(); ++i) {
    (void)losses_.note(steps[i].loss);
    (void)gradient_norms_.note(steps[i].grad_norm);
  }
}

// A function of the step alone, so that a resumed run logs the same steps: every --log-interval steps, and at the end of
// epochs that have none of these.
bool Trainer::is_logged(std::int64_t step) const {
  const std::int64_t every = options_.output.log_interval;
  if (step % every == 0 || step == total_steps_) return true;
  const std::int64_t epoch = prepared_.state.batch.steps_per_epoch;
  return step % epoch == 0 && step / every == (step - epoch) / every;
}

// What people see between the steps that are logged.
void Trainer::show_step(const StepResult& result, double lr) {
  constexpr double kFirstLine = 10;      // seconds of training
  constexpr double kBetweenPoints = 10;  // seconds, of TensorBoard
  const double time = now();
  const double elapsed = time - line_at_;
  shown_.epoch = epoch_of_last_step();
  shown_.epochs = epochs_shown();
  shown_.step = run_.step();
  shown_.steps = total_steps_;
  shown_.loss = result.loss;
  shown_.lr = lr;
  const double rate = elapsed > 0 ? static_cast<double>(samples_since_line_) / elapsed : 0;
  if (!line_written_) shown_.images_per_second = rate;
  output_->console.update(shown_);
  if (!line_written_ && elapsed > kFirstLine) {
    line_written_ = true;
    output_->console.log(shown_);
  }
  if (time - shown_at_ < kBetweenPoints) return;
  shown_at_ = time;
  output_->folder.log().show({shown_.step,
                              shown_.epoch,
                              result.loss,
                              lr,
                              rate,
                              PhaseTotals{},
                              result.grad_norm,
                              recorder_.mfu(rate),
                              recorder_.memory(),
                              {}});
}

}  // namespace ddp
