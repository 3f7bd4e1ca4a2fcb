#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "gradients/buckets.h"
#include "gradients/device_reducer.h"
#include "gradients/reducer.h"
#include "options/parse.h"
#include "options/version.h"
#include "runtime/joint_error.h"
#include "train/fingerprint.h"
#include "train/model_source.h"

namespace ddp {
namespace {

ReductionAlgorithm algorithm_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::ring:
      return ReductionAlgorithm::ring;
    case Reduction::tree:
      return ReductionAlgorithm::tree;
    case Reduction::root:
      break;
  }
  return ReductionAlgorithm::root;
}

ReducerConfig reducer_config(const Experiment& e) {
  const DistributedOptions& options = e.options.distributed;
  std::vector<std::size_t> sizes;
  for (const Parameter& p : e.graph.parameters()) sizes.push_back(static_cast<std::size_t>(p.elements()));
  const auto bytes = [](double mib) { return static_cast<std::size_t>(mib * 1024 * 1024); };
  ReducerConfig config;
  // Only the fixed tree adds in the same order whatever the number of ranks.
  config.algorithm = e.options.optimizer.deterministic ? ReductionAlgorithm::tree : algorithm_of(options.reduction);
  config.bf16 = options.gradient_precision == GradientPrecision::bf16;
  config.overlap = options.overlap;
  config.buckets = plan_buckets(sizes, bytes(options.first_bucket_mib), bytes(options.bucket_mib));
  config.shards = e.batch.shards;
  config.elements = static_cast<std::size_t>(e.graph.parameter_count());
  return config;
}

std::unique_ptr<GradientReducer> make_reducer(Experiment& e, Communicator& ranks) {
  if (e.backend->on_host()) return std::make_unique<Reducer>(ranks, reducer_config(e));
  return std::make_unique<DeviceReducer>(ranks, *e.backend, e.sums.get(), reducer_config(e));
}

std::vector<ParameterSegment> segments_of(const Graph& graph, NoDecay no_decay_on) {
  std::vector<ParameterSegment> segments;
  for (const Parameter& p : graph.parameters()) {
    const bool plain = no_decay_on == NoDecay::norm_and_bias && p.shape.size() == 1;
    segments.push_back({p.offset, p.elements(), p.lr_scale, plain ? 0.0F : p.decay_scale, !plain});
  }
  return segments;
}

}  // namespace

std::int64_t total_steps_of(const OptimizerOptions& options, const BatchPlan& plan) {
  const std::int64_t steps = options.epochs * plan.steps_per_epoch;
  return options.max_steps > 0 ? std::min(steps, options.max_steps) : steps;
}

Trainer::Trainer(Experiment& experiment, Communicator& ranks, Signals* signals, RunOutput* output,
                 const std::optional<ResumePoint>& resumed)
    : experiment_(experiment),
      ranks_(ranks),
      signals_(signals),
      output_(output),
      options_(experiment.options.optimizer),
      optimizer_(*experiment.backend, segments_of(experiment.graph, options_.no_decay_on), update_settings(options_)),
      total_steps_(total_steps_of(options_, experiment.batch)),
      schedule_(schedule_config(options_, experiment.batch)),
      reducer_(make_reducer(experiment, ranks)),
      stage_(*experiment.backend, experiment.data.train->shape().bytes(), experiment.batch.per_rank,
             experiment.resident_train.get(), experiment.options.data.mixup > 0),
      train_step_({*experiment.backend, *experiment.network, *reducer_, optimizer_, stage_, clock_,
                   experiment.statistics.get()},
                  experiment.batch, ranks.rank(), experiment.options.device.cuda_graph != GraphMode::off),
      evaluator_(*experiment.backend, *experiment.network, *experiment.data.test, experiment.resident_test.get(), ranks,
                 experiment.options.output.eval_on, experiment.options.data) {
  for (const OptimizerState& state : optimizer_.state()) {
    host_state_.push_back({state.name, HostMirror(*experiment.backend, state.values,
                                                  static_cast<std::size_t>(experiment.graph.parameter_count()))});
  }
  if (!resumed) return;
  const TrainingState& state = resumed->state;
  step_ = state.step;
  cursor_ = {state.epoch, state.step_in_epoch};
  samples_seen_ = state.samples_seen;
  best_accuracy_ = state.best_accuracy;
  saved_step_ = step_;
  epoch_sums_.loss = state.epoch_loss_sum;
  epoch_sums_.samples = state.epoch_samples;
  epoch_logged_ = resumed->epoch_logged;
  if (!resumed->evaluation) return;
  last_evaluation_ = {resumed->evaluation->loss, resumed->evaluation->accuracy, 0};
  evaluated_step_ = step_;
  if (std::isfinite(last_evaluation_->loss)) best_accuracy_ = std::max(best_accuracy_, last_evaluation_->accuracy);
}

std::vector<TensorView> Trainer::parameter_views(const Experiment& experiment) {
  std::vector<TensorView> views;
  for (const Parameter& p : experiment.graph.parameters()) {
    if (!p.fixed) views.push_back({p.name, p.shape, experiment.host_parameters->values().data() + p.offset});
  }
  for (TensorView& view : experiment.statistics->mean_views()) views.push_back(std::move(view));
  return views;
}

std::vector<TensorView> Trainer::optimizer_views() {
  std::vector<TensorView> views = experiment_.statistics->shard_views();
  for (const NamedMirror& state : host_state_) {
    for (const Parameter& p : experiment_.graph.parameters()) {
      if (p.fixed) continue;
      views.push_back({state.name + "." + p.name, p.shape, state.mirror.values().data() + p.offset});
    }
  }
  return views;
}

void Trainer::broadcast_tensors() {
  broadcast_floats(ranks_, *experiment_.host_parameters);
  experiment_.statistics->broadcast(ranks_);
  for (NamedMirror& state : host_state_) broadcast_floats(ranks_, state.mirror);
}

Request Trainer::requested() {
  if (signals_ == nullptr) return {};
  return {signals_->stop_requested(), signals_->take_checkpoint_request()};
}

namespace {

// While the training loop runs, it is what acts on a request to stop; after it the program ends.
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
  const BatchPlan& plan = experiment_.batch;
  BatchStream stream(plan, ranks_.rank(), experiment_.data.train->size(), options_.seed, cursor_,
                     std::max<std::int64_t>(0, total_steps_ - step_));
  const DataOptions& data = experiment_.options.data;
  Loader loader(*experiment_.data.train,
                {.max_batch = plan.per_rank,
                 .workers = data.workers,
                 .prefetch = data.prefetch,
                 .read_pixels = experiment_.resident_train == nullptr,
                 .training = true,
                 .mixup = data.mixup},
                [&] { return stream.next(); });
  epoch_sums_.began = now();
  (void)clock_.lap();
  finish_interrupted();
  while (step_ < total_steps_) {
    clock_.switch_to(Phase::data_wait);
    const std::optional<Batch> batch = loader.next();
    DDP_ASSERT(batch.has_value());
    const std::int64_t samples = plan.batch_of_step(cursor_.step);
    const double lr = schedule_.lr(step_);
    const StepResult result = train_step_.run(experiment_.parameters(), *batch,
                                              {step_ + 1, samples, lr, schedule_.momentum(step_), requested()});
    if (!result.finite) stop_non_finite(result);
    after_step(result, lr, samples);
    if (result.request.stop && step_ < total_steps_) {
      if (saved_step_ != step_) save();
      return ExitCode::stopped;
    }
  }
  if (saved_step_ != step_) save();
  // A run that was complete when it was resumed stays as it is.
  if (evaluated_step_ != step_) evaluate();
  if (output_ != nullptr) output_->folder.check_held_now();
  return ExitCode::done;
}

// What the process that wrote the checkpoint did not come to: it may have been killed while it evaluated.
void Trainer::finish_interrupted() {
  if (cursor_.step == 0 && epoch_sums_.samples > 0) end_epoch(/*saves=*/false);
}

StepResult Trainer::step_on(const Batch& batch) {
  return train_step_.run(
      experiment_.parameters(), batch,
      {step_ + 1, experiment_.batch.global_batch, schedule_.lr(step_), schedule_.momentum(step_), {}});
}

void Trainer::after_step(const StepResult& result, double lr, std::int64_t samples) {
  ++step_;
  samples_seen_ += samples;
  samples_since_line_ += samples;
  epoch_sums_.loss += result.loss * static_cast<double>(samples);
  epoch_sums_.samples += samples;
  epoch_sums_.samples_here += samples;
  const Cursor before = cursor_;
  cursor_ = advanced(cursor_, experiment_.batch.steps_per_epoch);
  if (step_ % experiment_.options.output.log_interval == 0 || step_ == total_steps_) log_step(result, lr);
  if (output_ != nullptr) {
    output_->console.update({before.epoch + 1, options_.epochs, step_, total_steps_, result.loss, lr, 0});
  }
  if (output_ != nullptr) output_->folder.check_held();
  const std::int64_t every = experiment_.options.output.checkpoint_every;
  const bool due = (every > 0 && step_ % every == 0) || result.request.checkpoint;
  if (cursor_.epoch != before.epoch) {
    epoch_logged_ = false;
    end_epoch(due || every == 0);
  } else if (due) {
    save();
  }
}

void Trainer::log_step(const StepResult& result, double lr) {
  const PhaseTotals lap = clock_.lap();
  const std::int64_t samples = std::exchange(samples_since_line_, 0);
  if (output_ == nullptr) return;
  const double training = lap.sum() - lap[Phase::evaluation] - lap[Phase::checkpoint];
  const double rate = training > 0 ? static_cast<double>(samples) / training : 0;
  const std::int64_t epoch = epoch_of_last_step();
  output_->folder.log().write(TrainRecord{step_, epoch, result.loss, lr, rate, lap});
  output_->console.log({epoch, options_.epochs, step_, total_steps_, result.loss, lr, rate});
}

bool Trainer::evaluates_here() const {
  const std::int64_t every = experiment_.options.output.eval_every;
  return step_ == total_steps_ || (every > 0 && cursor_.epoch % every == 0);
}

// Saved first, then evaluated: whatever goes wrong in an evaluation, or how long it takes, the epoch is not lost.
void Trainer::end_epoch(bool saves) {
  epoch_sums_.seconds = now() - epoch_sums_.began;
  const bool evaluates = evaluates_here();
  if ((saves || evaluates) && saved_step_ != step_) save();
  if (evaluates && evaluated_step_ != step_) evaluate();
  if (!epoch_logged_) log_epoch();
  epoch_logged_ = true;
  epoch_sums_ = {.began = now()};
}

void Trainer::log_epoch() {
  if (output_ == nullptr) return;
  EpochRecord record;
  record.epoch = cursor_.epoch;  // the one that has ended, counted from 1
  record.step = step_;
  record.train_loss = epoch_sums_.loss / static_cast<double>(epoch_sums_.samples);
  if (evaluated_step_ == step_) {
    record.val_loss = last_evaluation_->loss;
    record.val_accuracy = last_evaluation_->accuracy;
  }
  record.lr = schedule_.lr(step_ - 1);
  if (epoch_sums_.samples_here > 0) {
    record.seconds = epoch_sums_.seconds;
    record.images_per_second = static_cast<double>(epoch_sums_.samples_here) / epoch_sums_.seconds;
  }
  output_->folder.log().write(record);
  output_->console.epoch(record);
}

// What is saved or evaluated is the same on all ranks, and numbers: a checkpoint that holds others would be resumed
// from for ever.
void Trainer::check_weights() {
  if (checked_step_ == step_) return;
  experiment_.statistics->gather(ranks_);
  experiment_.host_parameters->fetch();
  for (NamedMirror& each : host_state_) each.mirror.fetch();
  const std::vector<TensorView> weights = parameter_views(experiment_);
  const std::vector<TensorView> state = optimizer_views();
  check_same_on_all_ranks(
      ranks_, {tensors_part("weights", weights), tensors_part("optimizer state", state)}, ExitCode::checkpoint,
      fmt::format("nothing was saved after step {}; the ranks no longer compute the same, look for machines with other "
                  "libraries or bad memory",
                  step_));
  std::string broken = first_not_finite(weights);
  if (broken.empty()) broken = first_not_finite(state);
  if (!broken.empty()) {
    throw JointError(ExitCode::non_finite,
                     fmt::format("step {} (epoch {}): '{}' holds numbers that are no longer finite; it was not saved, "
                                 "and {}; lower --lr, or lengthen --warmup-epochs",
                                 step_, epoch_of_last_step(), broken, kept_text()),
                     ranks_.rank() == 0);
  }
  checked_step_ = step_;
}

void Trainer::evaluate() {
  const Activity activity("evaluating");
  const PhaseScope scope(clock_, Phase::evaluation);
  check_weights();
  const float* average = optimizer_.average();
  last_evaluation_ =
      evaluator_.run({average != nullptr ? average : experiment_.parameters(), experiment_.statistics->mean()});
  evaluated_step_ = step_;
  const bool finite = std::isfinite(last_evaluation_->loss);
  const bool best = finite && last_evaluation_->accuracy > best_accuracy_;
  if (best) best_accuracy_ = last_evaluation_->accuracy;
  if (output_ == nullptr) return;
  if (!finite) {
    log_warning("step {}: the loss over the test images is not a finite number; this is not the best checkpoint",
                step_);
  }
  output_->folder.log().write(
      EvalRecord{step_, epoch_of_last_step(), last_evaluation_->loss, last_evaluation_->accuracy});
  output_->folder.evaluated(step_, {last_evaluation_->loss, last_evaluation_->accuracy}, best);
}

void Trainer::save() {
  const Activity activity("writing a checkpoint");
  const PhaseScope scope(clock_, Phase::checkpoint);
  check_weights();
  saved_step_ = step_;
  if (output_ == nullptr) return ranks_.barrier();
  TrainingState state;
  state.model = model_label(experiment_.options.model.model);
  state.model_hash = experiment_.onnx_hash;
  const Shape& image = experiment_.graph.shape(experiment_.graph.input());
  state.image = {image.channels, image.height, image.width};
  state.class_count = experiment_.graph.classes();
  for (std::size_t c = 0; c < experiment_.scale.size(); ++c) {
    state.deviation.push_back(1 / (255.0 * experiment_.scale[c]));
    state.mean.push_back(-experiment_.shift[c] * state.deviation[c]);
  }
  state.dataset = experiment_.options.data.dataset;
  state.optimizer = to_string(options_.optimizer);
  state.seed = options_.seed;
  state.step = step_;
  state.epoch = cursor_.epoch;
  state.step_in_epoch = cursor_.step;
  state.global_batch = experiment_.batch.global_batch;
  state.samples_seen = samples_seen_;
  state.logical_shards = experiment_.batch.shards;
  state.best_accuracy = best_accuracy_;
  state.epoch_loss_sum = epoch_sums_.loss;
  state.epoch_samples = epoch_sums_.samples;
  state.plan = experiment_.plan_text;
  state.classes = experiment_.data.train->class_names();
  state.config = dump_config(experiment_.options);
  state.fingerprint["version"] = program_version();
  for (const FingerprintPart& part : experiment_.fingerprint) state.fingerprint[part.name] = part.value;
  output_->folder.save(state, parameter_views(experiment_), optimizer_views());
  // The others wait for it here, so that nobody books it as communication.
  ranks_.barrier();
}

std::string Trainer::kept_text() const {
  return saved_step_ < 0 ? "there is no checkpoint yet" : fmt::format("the checkpoint of step {} is kept", saved_step_);
}

void Trainer::stop_non_finite(const StepResult& result) const {
  throw JointError(
      ExitCode::non_finite,
      fmt::format("step {} (epoch {}): the {} is no longer a finite number; nothing was updated, and {}; "
                  "lower --lr, or lengthen --warmup-epochs",
                  step_ + 1, cursor_.epoch + 1, std::isfinite(result.loss) ? "gradient" : "loss", kept_text()),
      ranks_.rank() == 0);
}

}  // namespace ddp
