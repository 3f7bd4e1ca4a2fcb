#include "train/loop/trainer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/status/heartbeat.h"
#include "base/status/position.h"
#include "base/text/text.h"
#include "job/joint_error.h"
#include "metrics/logs/read_log.h"
#include "train/inputs/fingerprint.h"
#include "train/loop/open_device.h"

namespace ddp {
namespace {

// With more ranks, which send messages from host memory, the results of several steps go to rank 0 together.
constexpr int kFewRanks = 16;

bool collects_results(const Job& job) { return job.size() > kFewRanks && !job.on_gpu(); }

std::size_t in_flight(const PreparedRun& run, const Options& options) {
  const DeviceCommunicator* sums = run.engine.sums.get();
  return steps_in_flight(options, {.on_gpu = run.job.on_gpu(),
                                   .pipelined = run.plan.parallelism.pipelined(),
                                   .recordable_sums = sums == nullptr || sums->recordable()});
}

}  // namespace

Trainer::Stepper::Stepper(PreparedRun& prepared, const Options& options, const TrainingImages& images, TrainingRun& run,
                          PhaseClock& clock)
    : reducer(prepared.engine.summing_ranks(prepared.job.ranks), *prepared.backend, *prepared.engine.sums,
              reducer_config(prepared)),
      stage(prepared.backend->device(), batch_buffers(options, prepared.state.batch, prepared.plan.parallelism.place,
                                                      images, in_flight(prepared, options))),
      statistic_ranks(options.model.sync_batch_norm && prepared.job.size() > 1 ? prepared.job.ranks.duplicate()
                                                                               : nullptr),
      exchange(prepared.plan.parallelism.slices.any() ? std::make_unique<RankExchange>(prepared.job.ranks.duplicate())
                                                      : nullptr),
      pipeline(prepared.engine.pipeline
                   ? std::make_unique<PipelineRun>(
                         *prepared.engine.pipeline, prepared.job.ranks,
                         prepared.state.batch.shards_of(prepared.plan.parallelism.place.replica).size(),
                         mixes(options.data))
                   : nullptr),
      step({*prepared.backend, pipeline ? pipeline->network() : *images.network, reducer, run.optimizer(), stage, clock,
            prepared.state.statistics.get(), options.output.recording, sums_in_rank_order(statistic_ranks.get()),
            &prepared.plan.parallelism.slices, exchange ? &exchange->shards() : nullptr, pipeline.get(),
            prepared.state.share.get()},
           prepared.state.batch, prepared.plan.parallelism.place.replica,
           {.scales_loss = options.model.precision == Precision::fp16,
            .record = options.device.cuda_graph != GraphMode::off,
            .ahead = in_flight(prepared, options),
            // The device has others while the host reads the results of one half.
            .together = images.resident == nullptr ? 1 : std::max<std::size_t>(1, in_flight(prepared, options) / 2),
            .squares_by_range = !sums_squares_by_rank(prepared.job.defaults),
            .keeps_results = collects_results(prepared.job)}) {}

Trainer::Trainer(PreparedRun& prepared, TrainingRun& run, const Options& options, Signals* signals, RunOutput* output)
    : prepared_(prepared),
      run_(run),
      ranks_(prepared.job.ranks),
      signals_(signals),
      output_(output),
      options_(options),
      total_steps_(ddp::total_steps(options.optimizer, prepared.inputs.batch.steps_per_epoch)),
      schedule_(schedule_config(options.optimizer, prepared.inputs.batch)),
      images_(training_images(prepared.inputs, prepared.engine, run.cursor().epoch)),
      stepper_(std::make_unique<Stepper>(prepared, options, images_, run, clock_)),
      most_in_flight_(in_flight(prepared, options)),
      collects_(collects_results(prepared.job)),
      recorder_(stepper_->reducer, output == nullptr ? nullptr : &output->folder, options.output.recording,
                /*same_buckets=*/!prepared.plan.parallelism.pipelined()),
      evaluator_(*prepared.backend, *prepared.engine.network, prepared.inputs.test(),
                 prepared.engine.resident_test.get(), ranks_, options.output.eval_on, options.data,
                 options.output.eval_views) {
  recorder_.compute_on(*images_.graph);
  const std::vector<GpuInfo>& gpus = prepared.job.device.gpus;
  if (!gpus.empty()) recorder_.watch_gpu(gpus[static_cast<std::size_t>(ranks_.rank())].pci_id);
  const BatchPlan& plan = prepared.inputs.batch;
  if (options.batch.balance && plan.ranks > 1) balance_.emplace(plan.shards, plan.ranks);
}

Request Trainer::requested() {
  if (signals_ == nullptr) return {};
  const bool retry = output_ != nullptr && output_->folder.retry_due();
  const Request dropped = std::exchange(dropped_, {});
  return {signals_->stop_requested() || dropped.stop,
          signals_->take_checkpoint_request() || retry || dropped.checkpoint};
}

namespace {

// The training loop acts on a request to stop; after the loop the program ends.
class StopsByStep {
 public:
  explicit StopsByStep(Signals* signals) : signals_(signals) {
    if (signals_ != nullptr) signals_->set_stop_mode(StopMode::by_step);
  }
  ~StopsByStep() {
    if (signals_ != nullptr) signals_->set_stop_mode(StopMode::finished);
  }
  StopsByStep(const StopsByStep&) = delete;
  StopsByStep& operator=(const StopsByStep&) = delete;

 private:
  Signals* signals_;
};

}  // namespace

ExitCode Trainer::run() {
  const Activity activity("training");
  const StopsByStep stops(signals_);
  read_from_here();
  if (output_ != nullptr && run_.step() > 0) recall_outliers();
  epoch_began_ = line_at_ = shown_at_ = now();
  (void)clock_.lap();
  if (!finish_interrupted()) return leave(ExitCode::stopped);
  while (run_.step() < total_steps_) {
    if (training_images(prepared_.inputs, prepared_.engine, run_.cursor().epoch).network != images_.network) rebuild();
    while (const std::size_t count = steps_to_begin()) begin_steps(count);
    const BegunStep step = begun_.front();
    const std::optional<StepResult> finished = finish_step();
    if (!finished) continue;
    const StepResult& result = *finished;
    if (!result.finite) {
      collect_results();
      handle_non_finite(collects_ && ranks_.rank() == 0 ? noted_ : result, step.samples, step.lr);
    }
    stopping_ = stopping_ || result.request.stop;
    checkpoint_due_ = checkpoint_due_ || result.request.checkpoint;
    const bool complete = after_step(result, step.lr, step.samples);
    if (!complete || (stopping_ && begun_.empty() && run_.step() < total_steps_)) {
      if (!run_.saved_now()) save(/*last=*/true);
      return leave(ExitCode::stopped);
    }
    if (balance_) rebalance();
  }
  if (!run_.saved_now()) save(/*last=*/true);
  // A run that was already complete when resumed is not changed.
  if (!run_.evaluated_now() && !evaluate()) return leave(ExitCode::stopped);
  if (output_ != nullptr) output_->folder.check_held_now();
  return leave(ExitCode::done);
}

// Whether a step of the cursor's epoch, counted from 0, begins only after all before it have ended.
bool Trainer::waits_before(std::int64_t step) const {
  const std::int64_t every = options_.output.checkpoint_every;
  // Checkpoints and evaluations need the weights that a step leaves. A bad learning rate is an error of its step.
  return step == total_steps_ || run_.cursor().step + step - run_.step() == prepared_.state.batch.steps_per_epoch ||
         (every > 0 && step % every == 0) || !std::isfinite(schedule_.control(step).lr);
}

// The same on all ranks: it depends on positions and on results that all of them have.
bool Trainer::begins_another() const {
  return begun_.empty() ||
         (begun_.size() < most_in_flight_ && !stopping_ && !checkpoint_due_ && !waits_before(next_step()));
}

// One, or several that begin at once if nothing happens between them; 0: none until another has ended.
std::size_t Trainer::steps_to_begin() const {
  if (!begins_another()) return 0;
  const std::size_t together = stepper_->step.together();
  if (together == 1 || options_.optimizer.lookahead > 0) return 1;
  const std::int64_t last = next_step() + static_cast<std::int64_t>(together) - 1;
  for (std::int64_t step = next_step() + 1; step <= last; ++step) {
    if (waits_before(step)) return 1;
  }
  if (input_of(last).samples != prepared_.state.batch.global_batch) return 1;
  return begun_.size() + together <= most_in_flight_ ? together : 0;
}

void Trainer::begin_steps(std::size_t count) {
  clock_.switch_to(Phase::data_wait);
  note_step(next_step() + 1);
  note_phase(WorkPhase::data);
  const double began = now();
  StepInput input = input_of(next_step());
  check_learning_rate(input);
  if (images_.resident == nullptr) {
    const Batch batch = next_batch();
    input.request = requested();
    stepper_->step.begin(step_parameters(), batch, input);
  } else {
    if (next_step() >= loaded_to_) load_steps();
    stepper_->step.begin_loaded(step_parameters(), requested(), count);
  }
  for (std::size_t i = 0; i < count; ++i) {
    input = input_of(next_step());
    run_.look_ahead(next_step() + 1, stepper_->step.halted());
    begun_.push_back({began, input.control.lr, input.samples});
  }
}

// The first one in flight; nothing if it is to be repeated.
std::optional<StepResult> Trainer::finish_step() {
  const std::int64_t number = run_.step() + 1;
  note_step(number);
  const StepResult result = stepper_->step.finish();
  if (!result.finite && lowers_loss_scale(result)) return std::nullopt;
  const BegunStep step = begun_.front();
  begun_.pop_front();
  // The times of steps do not overlap. Those of sums are the last step's that has begun.
  recorder_.step({number, std::max(step.began, recorded_at_), clock_.totals(), input_->counts()},
                 /*sum_times=*/begun_.empty());
  if (collects_) {
    uncollected_.push_back({number, step.lr, step.samples});
  } else {
    note_result(number, result, step.lr, step.samples);
  }
  recorded_at_ = now();
  return result;
}

std::string Trainer::split_text() const {
  const std::int64_t steps = steps_here();
  if (stepper_->exchange == nullptr || steps == 0) return "";
  const LayerTraffic planned = layer_traffic(prepared_.inputs.graph, prepared_.plan.parallelism.slices.layers(),
                                             ranks_.size(), prepared_.state.batch.global_batch);
  return fmt::format("rank {} sent {} bytes of activations per step, instead of {} of gradients", ranks_.rank(),
                     format_count(stepper_->exchange->bytes_sent() / static_cast<std::uint64_t>(steps)),
                     format_count(static_cast<std::uint64_t>(planned.gradients)));
}

// After a step: measures it, and at times moves shards between the ranks.
void Trainer::rebalance() {
  PhaseTotals step = clock_.totals();
  const PhaseTotals now = step;
  step -= measured_;
  measured_ = now;
  balance_->note_step(step[Phase::data_wait] + step[Phase::forward] + step[Phase::backward]);
  if (!balance_->due()) return;
  const std::optional<std::vector<std::int64_t>> counts = balance_->decide(ranks_);
  if (!counts || run_.step() == total_steps_) return;
  collect_results();
  State& state = prepared_.state;
  state.batch.divide(*counts);
  state.statistics->divide(ranks_, state.batch.shards_of(ranks_.rank()));
  stepper_.reset();
  const Reduction reduction = reduction_of(options_);
  // Other algorithms do not depend on the division.
  if (reduction == Reduction::tree) {
    prepared_.engine.sums =
        open_sums(prepared_.job.device, ranks_, prepared_.backend->device(), {reduction, state.batch.shards, *counts});
  }
  rebuild();
  log_info("step {}: {}", run_.step(), balance_->summary());
}

// What computes and reads the steps from here on, after a change of the shards or of the images' size.
void Trainer::rebuild() {
  collect_results();
  stepper_.reset();
  images_ = training_images(prepared_.inputs, prepared_.engine, run_.cursor().epoch);
  stepper_ = std::make_unique<Stepper>(prepared_, options_, images_, run_, clock_);
  recorder_.compute_on(*images_.graph);
  read_from_here();
}

// The checkpoint of the last step may still be on its way to the disk.
ExitCode Trainer::leave(ExitCode code) {
  const LongActivity activity("writing a checkpoint");
  note_phase(WorkPhase::end);
  collect_results();
  const PhaseScope scope(clock_, Phase::checkpoint);
  if (output_ != nullptr) output_->folder.finish_saving();
  timing_ = recorder_.finish(ranks_, clock_.totals(), run_.step(), code == ExitCode::done);
  ranks_.barrier();
  return code;
}

// The evaluation that the process that wrote the checkpoint may not have completed, for example because it was killed.
bool Trainer::finish_interrupted() {
  const bool ended = run_.cursor().step == 0 || ends_within_epoch();
  return !ended || run_.epoch_sums().samples == 0 || end_epoch(/*saves=*/false);
}

bool Trainer::steps_on(const Batch& batch, std::int64_t count) {
  TrainStep& step = stepper_->step;
  const StepInput input{schedule_.control(run_.step()), prepared_.state.batch.global_batch, {}};
  const bool loaded = images_.resident != nullptr;
  if (loaded) step.load(batch, {input});
  bool finite = true;
  for (std::int64_t begun = 0; begun < count || step.in_flight() > 0;) {
    const auto together = static_cast<std::int64_t>(step.together());
    const std::int64_t next = begun + together <= count ? together : 1;
    if (begun < count && step.in_flight() + static_cast<std::size_t>(next) <= most_in_flight_) {
      if (loaded) {
        step.begin_loaded(step_parameters(), {}, static_cast<std::size_t>(next));
      } else {
        step.begin(step_parameters(), batch, input);
      }
      begun += next;
    } else {
      finite = step.finish().finite && finite;
      step.forget_last();
    }
  }
  return finite;
}

bool Trainer::after_step(const StepResult& finished, double lr, std::int64_t samples) {
  const Cursor before = run_.cursor();
  if (finished.finite) {
    run_.advance(samples);
  } else {
    run_.pass_over(samples);
  }
  const std::int64_t step = run_.step();
  if (run_.cursor().epoch != before.epoch || wants_results(step)) collect_results();
  const StepResult& result = collects_ ? noted_ : finished;
  samples_since_line_ += samples;
  epoch_samples_here_ += samples;
  if (is_logged(step)) {
    log_step(result, lr);
  } else if (output_ != nullptr) {
    show_step(result, lr);
  }
  if (output_ != nullptr) output_->folder.check_held();
  const std::int64_t every = options_.output.checkpoint_every;
  const bool asked = checkpoint_due_ && begun_.empty();
  if (asked) checkpoint_due_ = false;
  const bool due = (every > 0 && step % every == 0) || asked;
  if (run_.cursor().epoch != before.epoch || ends_within_epoch()) {
    return end_epoch(due || every == 0);
  }
  if (due) save(/*last=*/step == total_steps_);
  return true;
}

void Trainer::log_step(const StepResult& result, double lr) {
  const PhaseTotals lap = clock_.lap();
  const RankPhases sampled = recorder_.sample(ranks_, clock_.totals(), run_.step());
  const std::int64_t samples = std::exchange(samples_since_line_, 0);
  if (output_ == nullptr) return;
  const double training = lap.sum() - lap[Phase::evaluation] - lap[Phase::checkpoint];
  const double rate = training > 0 ? static_cast<double>(samples) / training : 0;
  const std::int64_t epoch = epoch_of_last_step();
  const std::int64_t step = run_.step();
  output_->folder.log().write(TrainRecord{step, epoch, result.loss, lr, rate, lap, result.grad_norm,
                                          recorder_.mfu(rate), recorder_.memory(), sampled});
  shown_ = {epoch,        epochs_shown(), step, total_steps_, result.loss, lr, rate, recorder_.mfu(rate).value_or(-1),
            limit_of(lap)};
  line_at_ = shown_at_ = now();
  line_written_ = true;
  output_->console.log(shown_);
  output_->console.update(shown_);
}

bool Trainer::evaluates_here() const {
  const std::int64_t every = options_.output.eval_every;
  return run_.step() == total_steps_ || (every > 0 && run_.cursor().epoch % every == 0);
}

// Save first, then evaluate, so that the epoch is not lost if the evaluation fails or takes long.
bool Trainer::end_epoch(bool saves) {
  epoch_seconds_ = now() - epoch_began_;
  const bool evaluates = evaluates_here();
  if ((saves || evaluates) && !run_.saved_now()) save(/*last=*/run_.step() == total_steps_);
  if (evaluates && !run_.evaluated_now() && !evaluate()) return false;
  if (!run_.epoch_logged() || ends_within_epoch()) log_epoch();
  run_.finish_epoch();
  epoch_began_ = now();
  epoch_samples_here_ = 0;
  return true;
}

void Trainer::log_epoch() {
  if (output_ == nullptr) return;
  EpochRecord record;
  record.epoch = epoch_of_last_step();
  record.step = run_.step();
  record.train_loss = run_.epoch_sums().loss / static_cast<double>(run_.epoch_sums().samples);
  if (run_.evaluated_now()) {
    record.val_loss = run_.last_evaluation().loss;
    record.val_accuracy = run_.last_evaluation().accuracy;
  }
  record.lr = schedule_.lr(run_.step() - 1);
  if (epoch_samples_here_ > 0) {
    record.seconds = epoch_seconds_;
    record.images_per_second = static_cast<double>(epoch_samples_here_) / epoch_seconds_;
  }
  output_->folder.log().write(record);
  output_->console.epoch(record);
}

// Saved and evaluated values must be finite and the same on all ranks; otherwise every resume would start from a bad
// checkpoint.
void Trainer::check_weights() {
  if (checked_step_ == run_.step()) return;
  run_.fetch();
  const std::vector<TensorView> weights = run_.weights();
  const std::vector<TensorView> state = run_.common_state();
  if (ranks_.size() > 1) {
    check_same_on_all_ranks(
        ranks_, {tensors_part("weights", weights), tensors_part("optimizer state", state)}, ExitCode::checkpoint,
        fmt::format("nothing was saved after step {}; the ranks have diverged; look for hosts with different "
                    "libraries or faulty memory",
                    run_.step()));
  }
  std::string broken = first_not_finite(weights);
  if (broken.empty() && !prepared_.state.statistics->finite()) broken = "running_statistics";
  if (broken.empty()) broken = first_not_finite(state);
  if (!broken.empty()) {
    throw JointError(ExitCode::non_finite,
                     fmt::format("step {} (epoch {}): '{}' contains non-finite values; it was not saved, "
                                 "and {}; lower --lr, or lengthen --warmup-epochs",
                                 run_.step(), epoch_of_last_step(), broken, kept_text()),
                     ranks_.rank() == 0);
  }
  checked_step_ = run_.step();
}

bool Trainer::evaluate() {
  const LongActivity activity("evaluating");
  note_phase(WorkPhase::evaluation);
  const PhaseScope scope(clock_, Phase::evaluation);
  check_weights();
  const float* average = run_.optimizer().average();
  const std::optional<EvalResult> complete = evaluator_.run_unless(
      {average != nullptr ? average : prepared_.state.parameters(), prepared_.state.statistics->mean()},
      [this] { return signals_ != nullptr && signals_->stop_requested(); });
  if (!complete) return false;
  const EvalResult& result = *complete;
  const bool best = run_.evaluated(result);
  recorder_.count_evaluation();
  if (output_ != nullptr) write_evaluation(result, best);
  // The other ranks wait here for rank 0, so that this is not attributed to communication.
  ranks_.barrier();
  return true;
}

void Trainer::write_evaluation(const EvalResult& result, bool best) {
  const std::int64_t step = run_.step();
  if (!std::isfinite(result.loss)) {
    log_warning("step {}: the loss on the test images is not finite; this checkpoint cannot become the best", step);
  }
  const double top5 = result.classes.top5_accuracy();
  const Evaluation evaluation{result.loss, result.accuracy, top5 < 0 ? std::nullopt : std::optional(top5),
                              result.classes.class_accuracy(), result.classes.confusion};
  output_->folder.log().write(EvalRecord{step, epoch_of_last_step(), evaluation.loss, evaluation.accuracy,
                                         evaluation.top5_accuracy, evaluation.class_accuracy, evaluation.confusion});
  output_->folder.evaluated(step, evaluation, best);
}

void Trainer::save(bool last) {
  const LongActivity activity("writing a checkpoint");
  note_phase(WorkPhase::checkpoint);
  const PhaseScope scope(clock_, Phase::checkpoint);
  check_weights();
  run_.set_saved();
  recorder_.count_checkpoint();
  if (output_ != nullptr && last) output_->folder.save(run_.capture(), run_.weights(), run_.optimizer_state());
  if (output_ != nullptr && !last) {
    output_->folder.save_in_background(run_.capture(), run_.weights(), run_.optimizer_state());
  }
  // The other ranks wait here, so that this is not attributed to communication.
  ranks_.barrier();
}

std::string Trainer::kept_text() {
  // On rank 0, which reports it: what was saved last may not have been written.
  const std::int64_t resumed = run_.resumed_step();
  const std::int64_t kept = output_ != nullptr ? output_->folder.last_written().value_or(resumed) : run_.saved_step();
  return kept < 0 ? "there is no checkpoint yet" : fmt::format("the checkpoint of step {} is kept", kept);
}

}  // namespace ddp
