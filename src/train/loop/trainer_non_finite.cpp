// What a trainer does about a step that is not finite.
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "base/status/heartbeat.h"
#include "base/status/position.h"
#include "checkpoint/reader.h"
#include "job/joint_error.h"
#include "train/loop/trainer.h"
#include "train/nonfinite/non_finite.h"

namespace ddp {

// All ranks compute the same rate. A bad one would make every weight non-finite.
void Trainer::check_learning_rate(const StepInput& input) {
  const double lr = input.control.lr;
  if (std::isfinite(lr)) return;
  const LongActivity activity("searching for the cause of a non-finite step");
  note_phase(WorkPhase::diagnosis);
  const Batch batch = read_again(input.samples);
  NonFinite found = search(batch, input.samples);
  found.text = fmt::format("the learning rate is not finite ({})", lr);
  const std::string kept = keep_batch(found, lr);
  throw JointError(ExitCode::non_finite,
                   fmt::format("step {} (epoch {}): {}; the weights were not updated, and {}; {}; check --lr and the "
                               "options of --schedule",
                               run_.step() + 1, run_.cursor().epoch + 1, found.text, kept_text(), kept),
                   ranks_.rank() == 0);
}

// A gradient that overflows in fp16 is computed again with a lower loss scale, by all ranks: nothing was changed by the step
// or by those that have begun meanwhile. The loss does not depend on its scale.
bool Trainer::lowers_loss_scale(const StepResult& result) {
  const double scale = run_.loss_scale().at(run_.step());
  std::int64_t finite = std::isfinite(result.loss) ? 1 : 0;
  // A rank may know the loss of its own shards only.
  if (collects_) ranks_.all_reduce(std::span(&finite, 1), ReduceOp::min);
  if (finite == 0 || !run_.loss_scale().lower(run_.step())) return false;
  stepper_->step.forget_last();
  dropped_ = stepper_->step.resume();
  begun_.clear();
  if (output_ != nullptr) {
    log_info("step {}: the gradient overflows in fp16 with a loss scale of {:.0f}; repeated with {:.0f}",
             run_.step() + 1, scale, scale / 2);
  }
  read_from_here();
  return true;
}

// Every rank knows that the step was not finite, and has not updated since, nor have steps that have begun meanwhile.
// All of them look for the cause; then the run ends, or goes on behind this step.
void Trainer::handle_non_finite(const StepResult& result, std::int64_t samples, double lr) {
  const LongActivity activity("searching for the cause of a non-finite step");
  note_phase(WorkPhase::diagnosis);
  dropped_ = stepper_->step.resume();
  begun_.clear();
  const Batch batch = read_again(samples);
  NonFinite found = search(batch, samples);
  const std::string what =
      fmt::format("step {} (epoch {}): the {} is not finite, {}", run_.step() + 1, run_.cursor().epoch + 1,
                  std::isfinite(result.loss) ? "gradient" : "loss", found.text);
  found.loss = result.loss;
  const std::string kept = keep_batch(found, lr);
  const auto stop = [&](const std::string& why) {
    throw JointError(
        ExitCode::non_finite,
        fmt::format("{}; the weights were not updated, {}and {}; {}; lower --lr, or lengthen --warmup-epochs", what,
                    why, kept_text(), kept),
        ranks_.rank() == 0);
  };
  if (options_.optimizer.on_nonfinite == OnNonFinite::stop) stop("");
  ++non_finite_steps_;
  if (non_finite_steps_ > options_.optimizer.nonfinite_limit) {
    stop(fmt::format("{} steps were not finite, more than --nonfinite-limit {}, ", non_finite_steps_,
                     options_.optimizer.nonfinite_limit));
  }
  const std::string count = fmt::format("{} of at most {}", non_finite_steps_, options_.optimizer.nonfinite_limit);
  if (options_.optimizer.on_nonfinite == OnNonFinite::skip) {
    if (output_ != nullptr) log_warning("{}; the step is skipped ({}); {}", what, count, kept);
  } else {
    if (run_.saved_step() < 0) stop("there is nothing to roll back to, ");
    const std::int64_t from = roll_back();
    if (output_ != nullptr) {
      log_warning("{}; rolled back to the weights of step {} ({}); {}", what, from, count, kept);
    }
  }
  run_.look_ahead(run_.step() + 1, stepper_->step.halted());
}

// Collective. The parameters that are divided among the ranks become whole first.
NonFinite Trainer::search(const Batch& batch, std::int64_t samples) {
  run_.fetch();
  const std::vector<TensorView> parameters = run_.parameters();
  const std::vector<TensorView> weights = run_.weights();
  const State& state = prepared_.state;
  return find_non_finite({.backend = *prepared_.backend,
                          .images = images_,
                          .plan = state.batch,
                          .place = prepared_.plan.parallelism.place,
                          .pixels = prepared_.inputs.pixels,
                          .mixed = mixes(options_.data),
                          .graph = prepared_.inputs.graph,
                          .config = prepared_.plan.config,
                          .layouts = prepared_.plan.kernels.layouts,
                          .parameters = state.parameters(),
                          .statistics = state.statistics->mean_values(),
                          .named_parameters = parameters,
                          .named_weights = weights},
                         ranks_, stepper_->stage, batch, samples);
}

// Writes RUN/nonfinite-STEP on rank 0; returns how to look at it, as a clause.
std::string Trainer::keep_batch(NonFinite& found, double lr) {
  if (output_ == nullptr) return "";
  found.step = run_.step() + 1;
  found.epoch = run_.cursor().epoch + 1;
  found.lr = lr;
  const std::filesystem::path folder = non_finite_folder(output_->folder.path(), found.step);
  try {
    write_non_finite(folder, found, run_.capture(), run_.weights(), prepared_.inputs.onnx);
  } catch (const Error& error) {
    log_warning("the batch of step {} is not kept: {}", found.step, error.what());
    return "its batch could not be kept";
  }
  return fmt::format("'ddp_train replay {}' shows the step layer by layer", folder.string());
}

// Takes over the weights of the newest checkpoint; returns its step, on rank 0.
std::int64_t Trainer::roll_back() {
  std::optional<Checkpoint> checkpoint;
  if (output_ != nullptr) {
    // The newest one may still be on its way to the disk.
    (void)output_->folder.last_written();
    checkpoint = find_checkpoint(output_->folder.path());
    check(checkpoint.has_value(), ExitCode::checkpoint, "{}: there is no checkpoint any more to roll back to",
          output_->folder.path().string());
  }
  run_.roll_back(checkpoint ? &*checkpoint : nullptr);
  return checkpoint ? checkpoint->state.step : -1;
}

}  // namespace ddp
