// What a trainer writes down of each step: on rank 0, as soon as it has what all ranks know.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "metrics/read_log.h"
#include "train/trainer.h"

namespace ddp {
namespace {

// So many steps' results go to rank 0 together.
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
  const OutputOptions& options = experiment_.options.output;
  return uncollected_.size() >= kStepsOfResults || step % options.log_interval == 0 || step == total_steps_ ||
         (options.checkpoint_every > 0 && step % options.checkpoint_every == 0) || checkpoint_due_ || stopping_ ||
         ends_within_epoch();
}

// Collective, where results are collected from several steps.
void Trainer::collect_results() {
  if (uncollected_.empty()) return;
  const std::vector<StepResult> results = engine_->step.collect(ranks_);
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

}  // namespace ddp
