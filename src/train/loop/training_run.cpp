#include "train/loop/training_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "job/report.h"
#include "options/parse.h"
#include "options/version.h"
#include "train/inputs/model_source.h"
#include "train/parallel/shared_state.h"
#include "train/step/parameter_segments.h"

namespace ddp {
namespace {

// What a checkpoint stores of a run that its steps do not change.
TrainingState constant_state(const Job& job, const Inputs& inputs, const Plan& plan, Backend& backend) {
  const Options& options = job.options;
  const Graph& graph = inputs.graph;
  TrainingState state;
  state.model = model_label(options.model.model);
  state.model_hash = inputs.onnx_hash;
  const Shape& image = graph.shape(graph.input());
  state.image = {image.channels, image.height, image.width};
  state.class_count = graph.classes();
  for (std::size_t c = 0; c < inputs.pixels.scale.size(); ++c) {
    state.deviation.push_back(1 / (255.0 * inputs.pixels.scale[c]));
    state.mean.push_back(-inputs.pixels.shift[c] * state.deviation[c]);
  }
  state.dataset = options.data.dataset;
  state.optimizer = to_string(options.optimizer.optimizer);
  state.seed = options.optimizer.seed;
  state.global_batch = inputs.batch.global_batch;
  state.logical_shards = inputs.batch.shards;
  state.plan = plan.kernels.text;
  for (std::size_t i = 0; i < plan.smaller.size(); ++i) {
    state.plans[size_key(inputs.smaller[i].image)] = plan.smaller[i].text;
  }
  state.classes = inputs.train().class_names();
  state.config = dump_config(options);
  if (plan.buckets.measured_ranks > 0) {
    state.bucket_bytes = static_cast<std::int64_t>(plan.buckets.bytes);
    state.bucket_ranks = plan.buckets.measured_ranks;
  }
  // The bits of the fixed tree do not depend on measurements, and its checkpoints are the same in every run.
  if (reduction_of(options) != Reduction::tree) {
    state.pipeline_first.assign(plan.pipeline.first.begin(), plan.pipeline.first.end());
  }
  state.defaults = job.defaults;
  state.fingerprint["version"] = program_version();
  for (const FingerprintPart& part : inputs.fingerprint) state.fingerprint[part.name] = part.value;
  const FingerprintPart kernels = kernels_part(backend);
  state.fingerprint[kernels.name] = kernels.value;
  return state;
}

std::vector<ParameterSegment> segments_of(const PreparedRun& run) {
  const Parallelism& parallelism = run.plan.parallelism;
  std::vector<ParameterSegment> segments =
      parameter_segments(run.inputs.graph, run.job.options.optimizer, run.inputs.batch.steps_per_epoch);
  parallelism.slices.restrict_to_held(segments);
  const Range held = parallelism.held;
  std::erase_if(segments, [&](const ParameterSegment& s) { return s.offset < held.begin || s.offset >= held.end; });
  for (ParameterSegment& segment : segments) segment.offset -= held.begin;
  return run.state.share ? segments_within(segments, updated_ranges(reducer_config(run))) : segments;
}

// All parameters may lie in the part of this rank, without what is behind them.
UpdatedPart updated_part(const PreparedRun& run) {
  const Parallelism& parallelism = run.plan.parallelism;
  if (!parallelism.pipelined() && !run.state.share) return {};
  return {parallelism.held.begin, run.inputs.graph.flat_elements(), run.state.share != nullptr};
}

// Empty: the optimizer allocates it.
Memory state_memory(const PreparedRun& run) {
  if (!run.state.share) return {};
  return run.state.share->take(state_bytes(static_cast<std::size_t>(run.inputs.graph.flat_elements()),
                                           update_settings(run.job.options.optimizer)));
}

// Behind this state; after another precision its first value.
LossScale loss_scale_of(const Options& options, const TrainingState& state) {
  if (options.model.precision != Precision::fp16) return {};
  const std::int64_t interval = options.optimizer.loss_scale_interval;
  if (state.loss_scale > 0) return {state.loss_scale, interval, state.loss_scale_since};
  return {options.optimizer.loss_scale, interval, state.step};
}

}  // namespace

std::vector<TensorView> parameter_views(const Graph& graph, const State& state) {
  std::vector<TensorView> views;
  for (const Parameter& p : graph.parameters()) {
    if (!p.fixed) views.push_back({p.name, p.shape, state.host_parameters->values().data() + p.offset});
  }
  return views;
}

std::vector<TensorView> weight_views(const Graph& graph, const State& state) {
  std::vector<TensorView> views = parameter_views(graph, state);
  for (TensorView& view : state.statistics->mean_views()) views.push_back(std::move(view));
  return views;
}

TrainingRun::TrainingRun(PreparedRun& prepared)
    : job_(prepared.job),
      inputs_(prepared.inputs),
      plan_(prepared.plan),
      backend_(*prepared.backend),
      state_(prepared.state),
      engine_(prepared.engine),
      ranks_(prepared.job.ranks),
      optimizer_(backend_, segments_of(prepared), update_settings(job_.options.optimizer), updated_part(prepared),
                 state_memory(prepared)),
      loss_scale_(loss_scale_of(job_.options, {})),
      lookahead_(lookahead_config(job_.options.optimizer, inputs_.batch)),
      constant_state_(constant_state(job_, inputs_, plan_, backend_)) {
  if (plan_.parallelism.slices.any()) {
    optimizer_.set_sums_over_ranks(
        [&ranks = ranks_](std::span<double> values) { ranks.all_reduce(values, ReduceOp::sum); });
  }
  if (engine_.pipeline) {
    optimizer_.set_sum_over_parts([pipeline = engine_.pipeline.get()](const std::function<double(double)>& add) {
      return pipeline->sum_over_stages(add);
    });
  }
  if (state_.share) {
    optimizer_.set_sum_over_parts(
        [share = state_.share.get()](const std::function<double(double)>& add) { return share->sum(add(0)); });
  }
  for (const OptimizerState& state : optimizer_.state()) {
    host_state_.push_back({state.name, HostMirror(backend_.device(), state.values, optimizer_.elements())});
  }
  if (lookahead_.every == 0) return;
  const std::span<const float> weights = state_.host_parameters->values();
  slow_ = backend_.memory().allocate(weights.size_bytes(), "the slow weights of Lookahead");
  host_state_.push_back({"lookahead", HostMirror(backend_.device(), slow_.at<float>(0), weights.size())});
  HostMirror& slow = host_state_.back().mirror;
  std::copy(weights.begin(), weights.end(), slow.values().begin());
  slow.push();
}

void TrainingRun::look_ahead(std::int64_t step, const double* skip) {
  const std::optional<float> rest = lookahead_rest(lookahead_, step);
  if (!rest) return;
  const auto count = static_cast<std::size_t>(inputs_.graph.flat_elements());
  backend_.math().pull(slow_.at<float>(0), state_.parameters(), count, *rest, skip);
  state_.statistics->pull(*rest, skip);
}

void TrainingRun::restore(const MpiSession& session, const ResumePoint& point, const Checkpoint* checkpoint) {
  const TrainingState& state = point.state;
  step_ = state.step;
  cursor_ = {state.epoch, state.step_in_epoch};
  samples_seen_ = state.samples_seen;
  best_accuracy_ = state.best_accuracy;
  saved_step_ = step_;
  resumed_step_ = step_;
  loss_scale_ = loss_scale_of(job_.options, state);
  epoch_sums_ = {state.epoch_loss_sum, state.epoch_samples};
  epoch_logged_ = point.epoch_logged;
  if (point.evaluation) (void)evaluated({point.evaluation->loss, point.evaluation->accuracy, 0});
  together(session, [&] { read(checkpoint); });
  spread();
}

void TrainingRun::roll_back(const Checkpoint* checkpoint) {
  // Others may be reading what they share.
  if (state_.share) state_.share->meet();
  read(checkpoint);
  spread();
}

void TrainingRun::read(const Checkpoint* checkpoint) {
  if (checkpoint == nullptr) return;
  std::vector<TensorView> state = state_.statistics->shards_to_read(checkpoint->state.logical_shards);
  for (TensorView& view : common_state()) state.push_back(std::move(view));
  load(*checkpoint, model_label(job_.options.model.model), weights(), state);
}

// What rank 0 has read, to all ranks.
void TrainingRun::spread() {
  broadcast_floats(ranks_, *state_.host_parameters);
  state_.statistics->broadcast(ranks_);
  for (NamedMirror& each : host_state_) broadcast_floats(ranks_, each.mirror);
  // Nobody changes what another rank that shares it is still receiving.
  if (state_.share) state_.share->meet();
}

TrainingState TrainingRun::capture() const {
  TrainingState state = constant_state_;
  state.step = step_;
  state.epoch = cursor_.epoch;
  state.step_in_epoch = cursor_.step;
  state.samples_seen = samples_seen_;
  state.best_accuracy = best_accuracy_;
  state.epoch_loss_sum = epoch_sums_.loss;
  state.epoch_samples = epoch_sums_.samples;
  if (job_.options.model.precision == Precision::fp16) {
    state.loss_scale = loss_scale_.at(step_);
    state.loss_scale_since = step_ - loss_scale_.steps_since(step_);
  }
  return state;
}

void TrainingRun::fetch() {
  state_.statistics->gather(ranks_);
  fetch(*state_.host_parameters);
  for (NamedMirror& each : host_state_) fetch(each.mirror);
}

void TrainingRun::fetch(HostMirror& mirror) {
  mirror.fetch();
  if (!plan_.parallelism.slices.any() && !engine_.pipeline) return;
  if (engine_.pipeline) engine_.pipeline->gather(mirror.values());
  plan_.parallelism.slices.gather(ranks_, mirror.values());
  mirror.push();
}

std::vector<TensorView> TrainingRun::weights() const { return weight_views(inputs_.graph, state_); }
std::vector<TensorView> TrainingRun::parameters() const { return parameter_views(inputs_.graph, state_); }

std::vector<TensorView> TrainingRun::optimizer_state() {
  std::vector<TensorView> views = state_.statistics->shard_views();
  for (TensorView& view : common_state()) views.push_back(std::move(view));
  return views;
}

std::vector<TensorView> TrainingRun::common_state() {
  std::vector<TensorView> views;
  for (const NamedMirror& state : host_state_) {
    for (const Parameter& p : inputs_.graph.parameters()) {
      if (p.fixed) continue;
      views.push_back({state.name + "." + p.name, p.shape, state.mirror.values().data() + p.offset});
    }
  }
  return views;
}

void TrainingRun::advance(std::int64_t samples) {
  epoch_sums_.samples += samples;
  move_on(samples);
}

void TrainingRun::pass_over(std::int64_t samples) { move_on(samples); }

void TrainingRun::move_on(std::int64_t samples) {
  ++step_;
  samples_seen_ += samples;
  cursor_ = advanced(cursor_, inputs_.batch.steps_per_epoch);
  if (cursor_.step == 0) epoch_logged_ = false;
}

bool TrainingRun::evaluated(const EvalResult& result) {
  last_evaluation_ = result;
  evaluated_step_ = step_;
  const bool best = std::isfinite(result.loss) && result.accuracy > best_accuracy_;
  if (best) {
    best_accuracy_ = result.accuracy;
    best_step_ = step_;
  }
  return best;
}

void TrainingRun::finish_epoch() {
  epoch_logged_ = true;
  epoch_sums_ = {};
}

}  // namespace ddp
