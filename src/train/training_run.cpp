#include "train/training_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "job/report.h"
#include "options/parse.h"
#include "options/version.h"
#include "train/model_source.h"
#include "train/parameter_segments.h"
#include "train/shared_state.h"

namespace ddp {
namespace {

// What a checkpoint stores of a run that its steps do not change.
TrainingState constant_state(const Experiment& e) {
  TrainingState state;
  state.model = model_label(e.options.model.model);
  state.model_hash = e.onnx_hash;
  const Shape& image = e.graph.shape(e.graph.input());
  state.image = {image.channels, image.height, image.width};
  state.class_count = e.graph.classes();
  for (std::size_t c = 0; c < e.scale.size(); ++c) {
    state.deviation.push_back(1 / (255.0 * e.scale[c]));
    state.mean.push_back(-e.shift[c] * state.deviation[c]);
  }
  state.dataset = e.options.data.dataset;
  state.optimizer = to_string(e.options.optimizer.optimizer);
  state.seed = e.options.optimizer.seed;
  state.global_batch = e.batch.global_batch;
  state.logical_shards = e.batch.shards;
  state.plan = e.plan_text;
  for (const SmallerImages& smaller : e.smaller) state.plans[size_key(smaller.image)] = smaller.plan_text;
  state.classes = e.data.train->class_names();
  state.config = dump_config(e.options);
  if (e.measured_bucket_ranks > 0) {
    state.bucket_bytes = static_cast<std::int64_t>(e.bucket_bytes);
    state.bucket_ranks = e.measured_bucket_ranks;
  }
  // The bits of the fixed tree do not depend on measurements, and its checkpoints are the same in every run.
  if (reduction_of(e.options) != Reduction::tree) {
    state.pipeline_first.assign(e.pipeline_plan.first.begin(), e.pipeline_plan.first.end());
  }
  state.defaults = e.defaults;
  state.fingerprint["version"] = program_version();
  for (const FingerprintPart& part : e.fingerprint) state.fingerprint[part.name] = part.value;
  return state;
}

std::vector<ParameterSegment> segments_of(const Experiment& e) {
  std::vector<ParameterSegment> segments = parameter_segments(e.graph, e.options.optimizer, e.batch.steps_per_epoch);
  e.slices.restrict_to_held(segments);
  const Range held = e.held();
  std::erase_if(segments, [&](const ParameterSegment& s) { return s.offset < held.begin || s.offset >= held.end; });
  for (ParameterSegment& segment : segments) segment.offset -= held.begin;
  return e.share ? segments_within(segments, updated_ranges(reducer_config(e))) : segments;
}

// All parameters may lie in the part of this rank, without what is behind them.
UpdatedPart updated_part(const Experiment& e) {
  if (!e.pipeline && !e.share) return {};
  return {e.held().begin, e.graph.flat_elements(), e.share != nullptr};
}

// Empty: the optimizer allocates it.
Memory state_memory(const Experiment& e) {
  if (!e.share) return {};
  return e.share->take(
      state_bytes(static_cast<std::size_t>(e.graph.flat_elements()), update_settings(e.options.optimizer)));
}

// Behind this state; after another precision its first value.
LossScale loss_scale_of(const Options& options, const TrainingState& state) {
  if (options.model.precision != Precision::fp16) return {};
  const std::int64_t interval = options.optimizer.loss_scale_interval;
  if (state.loss_scale > 0) return {state.loss_scale, interval, state.loss_scale_since};
  return {options.optimizer.loss_scale, interval, state.step};
}

}  // namespace

std::vector<TensorView> parameter_views(const Experiment& experiment) {
  std::vector<TensorView> views;
  for (const Parameter& p : experiment.graph.parameters()) {
    if (!p.fixed) views.push_back({p.name, p.shape, experiment.host_parameters->values().data() + p.offset});
  }
  return views;
}

std::vector<TensorView> weight_views(const Experiment& experiment) {
  std::vector<TensorView> views = parameter_views(experiment);
  for (TensorView& view : experiment.statistics->mean_views()) views.push_back(std::move(view));
  return views;
}

TrainingRun::TrainingRun(Experiment& experiment, Communicator& ranks)
    : experiment_(experiment),
      ranks_(ranks),
      optimizer_(*experiment.backend, segments_of(experiment), update_settings(experiment.options.optimizer),
                 updated_part(experiment), state_memory(experiment)),
      loss_scale_(loss_scale_of(experiment.options, {})),
      lookahead_(lookahead_config(experiment.options.optimizer, experiment.batch)),
      constant_state_(constant_state(experiment)) {
  if (experiment.slices.any()) {
    optimizer_.set_sums_over_ranks([&ranks](std::span<double> values) { ranks.all_reduce(values, ReduceOp::sum); });
  }
  if (experiment.pipeline) {
    optimizer_.set_sum_over_parts([pipeline = experiment.pipeline.get()](const std::function<double(double)>& add) {
      return pipeline->sum_over_stages(add);
    });
  }
  if (experiment.share) {
    optimizer_.set_sum_over_parts(
        [share = experiment.share.get()](const std::function<double(double)>& add) { return share->sum(add(0)); });
  }
  for (const OptimizerState& state : optimizer_.state()) {
    host_state_.push_back({state.name, HostMirror(experiment.backend->queue(), state.values, optimizer_.elements())});
  }
  if (lookahead_.every == 0) return;
  const std::span<const float> weights = experiment.host_parameters->values();
  slow_ = experiment.backend->queue().allocate(weights.size_bytes(), "the slow weights of Lookahead");
  host_state_.push_back({"lookahead", HostMirror(experiment.backend->queue(), slow_.at<float>(0), weights.size())});
  HostMirror& slow = host_state_.back().mirror;
  std::copy(weights.begin(), weights.end(), slow.values().begin());
  slow.push();
}

void TrainingRun::look_ahead(std::int64_t step, const double* skip) {
  const std::optional<float> rest = lookahead_rest(lookahead_, step);
  if (!rest) return;
  const auto count = static_cast<std::size_t>(experiment_.graph.flat_elements());
  experiment_.backend->math().pull(slow_.at<float>(0), experiment_.parameters(), count, *rest, skip);
  experiment_.statistics->pull(*rest, skip);
}

void TrainingRun::restore(const MpiSession& session, const ResumePoint& point, const Checkpoint* checkpoint) {
  const TrainingState& state = point.state;
  step_ = state.step;
  cursor_ = {state.epoch, state.step_in_epoch};
  samples_seen_ = state.samples_seen;
  best_accuracy_ = state.best_accuracy;
  saved_step_ = step_;
  resumed_step_ = step_;
  loss_scale_ = loss_scale_of(experiment_.options, state);
  epoch_sums_ = {state.epoch_loss_sum, state.epoch_samples};
  epoch_logged_ = point.epoch_logged;
  if (point.evaluation) (void)evaluated({point.evaluation->loss, point.evaluation->accuracy, 0});
  together(session, [&] { read(checkpoint); });
  spread();
}

void TrainingRun::roll_back(const Checkpoint* checkpoint) {
  // Others may be reading what they share.
  if (experiment_.share) experiment_.share->meet();
  read(checkpoint);
  spread();
}

void TrainingRun::read(const Checkpoint* checkpoint) {
  if (checkpoint == nullptr) return;
  std::vector<TensorView> state = experiment_.statistics->shards_to_read(checkpoint->state.logical_shards);
  for (TensorView& view : common_state()) state.push_back(std::move(view));
  load(*checkpoint, model_label(experiment_.options.model.model), weights(), state);
}

// What rank 0 has read, to all ranks.
void TrainingRun::spread() {
  broadcast_floats(ranks_, *experiment_.host_parameters);
  experiment_.statistics->broadcast(ranks_);
  for (NamedMirror& each : host_state_) broadcast_floats(ranks_, each.mirror);
  // Nobody changes what another rank that shares it is still receiving.
  if (experiment_.share) experiment_.share->meet();
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
  if (experiment_.options.model.precision == Precision::fp16) {
    state.loss_scale = loss_scale_.at(step_);
    state.loss_scale_since = step_ - loss_scale_.steps_since(step_);
  }
  return state;
}

void TrainingRun::fetch() {
  experiment_.statistics->gather(ranks_);
  fetch(*experiment_.host_parameters);
  for (NamedMirror& each : host_state_) fetch(each.mirror);
}

void TrainingRun::fetch(HostMirror& mirror) {
  mirror.fetch();
  if (!experiment_.slices.any() && !experiment_.pipeline) return;
  if (experiment_.pipeline) experiment_.pipeline->gather(mirror.values());
  experiment_.slices.gather(ranks_, mirror.values());
  mirror.push();
}

std::vector<TensorView> TrainingRun::weights() const { return weight_views(experiment_); }
std::vector<TensorView> TrainingRun::parameters() const { return parameter_views(experiment_); }

std::vector<TensorView> TrainingRun::optimizer_state() {
  std::vector<TensorView> views = experiment_.statistics->shard_views();
  for (TensorView& view : common_state()) views.push_back(std::move(view));
  return views;
}

std::vector<TensorView> TrainingRun::common_state() {
  std::vector<TensorView> views;
  for (const NamedMirror& state : host_state_) {
    for (const Parameter& p : experiment_.graph.parameters()) {
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
  cursor_ = advanced(cursor_, experiment_.batch.steps_per_epoch);
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
