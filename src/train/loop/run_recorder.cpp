#include "train/loop/run_recorder.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "machine/nvml.h"
#include "model/stages.h"
#include "options/version.h"
#include "train/parallel/parallelism.h"

namespace ddp {
namespace {

// At least so long, and 50 ms for each rank, whose times are written.
constexpr double kSecondsBetweenWrites = 10;
constexpr double kSecondsForARank = 0.05;
// Backward computes the gradient of the weights and of the input, each with as many multiply-adds as forward.
constexpr double kPassesPerStep = 3;
constexpr double kFlopsPerMultiplyAdd = 2;

double flops_per_sample(const Graph& graph) {
  double multiply_adds = 0;
  for (const Stage& stage : make_stages(graph, 1)) {
    multiply_adds += forward_multiply_adds(stage.spec) * (stage.backward ? kPassesPerStep : 1);
  }
  return multiply_adds * kFlopsPerMultiplyAdd;
}

}  // namespace

RunRecorder::RunRecorder(const Reducer& reducer, RunFolder* folder, bool enabled, bool same_buckets)
    : reducer_(&reducer),
      folder_(folder),
      enabled_(enabled),
      same_buckets_(same_buckets),
      recorder_(reducer.buckets().size()) {}

void RunRecorder::watch_gpu(const std::string& pci_id) {
  if (!enabled_) return;
  std::shared_ptr<const Nvml> nvml;
  try {
    nvml = std::make_shared<const Nvml>();
  } catch (const Error&) {
    return;  // a container may lack this library
  }
  recorder_.set_gpu_clock([nvml, pci_id]() -> std::optional<GpuClockSample> {
    const std::optional<GpuClock> clock = nvml->clock(pci_id);
    if (!clock) return std::nullopt;
    return GpuClockSample{static_cast<double>(clock->mhz) / clock->highest_mhz, clock->heat, clock->power};
  });
}

void RunRecorder::follow(const Reducer& reducer) {
  reducer_ = &reducer;
  recorder_.new_loader();
}

void RunRecorder::compute_on(const Graph& graph) { flops_per_sample_ = flops_per_sample(graph); }

void RunRecorder::step(const StepInfo& info, bool sum_times) {
  flops_.add(flops_per_sample_);
  if (enabled_) recorder_.step(info, sum_times ? reducer_->bucket_times() : std::span<const SumTimes>());
}

void RunRecorder::log(std::int64_t step, const StepResult& result, double lr) {
  if (!enabled_ || folder_ == nullptr) return;
  const StepHashes& hashes = result.hashes;
  folder_->log().write(StepRecord{step, hashes.samples, hashes.pixels, lr, result.loss, result.grad_norm,
                                  hashes.statistics, hashes.weights});
}

RunTiming RunRecorder::gather(Communicator& ranks, const PhaseTotals& phases, std::int64_t step) {
  RunTiming timing;
  timing.step = step;
  timing.evaluations = evaluations_;
  timing.checkpoints = checkpoints_;
  timing.ranks = recorder_.gather(ranks, phases);
  timing.buckets = recorder_.buckets();
  if (same_buckets_) {
    std::vector<double> shortest(reducer_->buckets().size());
    for (std::size_t i = 0; i < timing.buckets.size(); ++i) shortest[i] = timing.buckets[i].shortest;
    ranks.all_reduce(std::span(shortest), ReduceOp::min);
    for (std::size_t i = 0; i < timing.buckets.size(); ++i) timing.buckets[i].shortest = shortest[i];
  }
  if (facts_) timing.facts = *facts_;
  if (flops_.steps > 0) timing.facts.flops_per_sample = flops_.sum / flops_.steps;
  return timing;
}

RankPhases RunRecorder::sample(Communicator& ranks, const PhaseTotals& phases, std::int64_t step) {
  if (!recorder_.gather_due()) return {};
  RankPhases sampled;
  sampled.steps = recorder_.steps_since_gather();
  const RunTiming timing = gather(ranks, phases, step);
  for (std::size_t rank = 0; rank < timing.ranks.size(); ++rank) {
    PhaseTotals since = timing.ranks[rank].phases;
    if (rank < last_.size()) since -= last_[rank].phases;
    sampled.ranks.push_back(since);
  }
  last_ = timing.ranks;
  if (now() - written_at_ > std::max(kSecondsBetweenWrites, kSecondsForARank * ranks.size())) write(timing);
  return sampled;
}

RunTiming RunRecorder::finish(Communicator& ranks, const PhaseTotals& phases, std::int64_t step, bool complete) {
  RunTiming timing = gather(ranks, phases, step);
  timing.ranks.resize(static_cast<std::size_t>(ranks.size()));
  ranks.broadcast(std::as_writable_bytes(std::span(timing.ranks)), 0);
  timing.complete = complete;
  write(timing);
  return timing;
}

// A run does not end because its timing could not be written.
void RunRecorder::write(const RunTiming& timing) {
  written_at_ = now();
  if (folder_ == nullptr || !facts_ || write_failed_ || timing.ranks[0].steps == 0) return;
  try {
    write_timing(folder_->path(), timing);
  } catch (const Error& error) {
    write_failed_ = true;
    log_warning("{}; 'ddp_train explain' will not know this run", error.what());
  }
}

std::optional<double> RunRecorder::mfu(double images_per_second) const {
  if (!facts_ || !facts_->peak_flops) return std::nullopt;
  const double peak = *facts_->peak_flops * static_cast<double>(facts_->hosts.size());
  return peak > 0 ? std::optional(images_per_second * flops_per_sample_ / peak) : std::nullopt;
}

std::optional<double> RunRecorder::memory() const {
  double most = 0;
  for (const RankTiming& rank : last_) most = std::max(most, rank.memory);
  return most > 0 ? std::optional(most) : std::nullopt;
}

namespace {

// What --split-linear would divide at less traffic, where it is possible.
DivisibleLayers divisible_layers(const PreparedRun& run) {
  DivisibleLayers found;
  const Graph& graph = run.inputs.graph;
  const BatchPlan& batch = run.state.batch;
  const Parallelism& parallelism = run.plan.parallelism;
  if (batch.ranks == 1 || parallelism.pipelined() || run.job.on_gpu() || parallelism.slices.any() ||
      batch.shards % batch.ranks != 0)
    return found;
  const std::vector<int> layers = layers_cheaper_divided(graph, batch.ranks, batch.global_batch);
  for (const int layer : layers) found.names.push_back(graph.layers()[static_cast<std::size_t>(layer)].name);
  const LayerTraffic sent = layer_traffic(graph, layers, batch.ranks, batch.global_batch);
  found.activations = sent.activations;
  found.gradients = sent.gradients;
  return found;
}

}  // namespace

RunFacts facts_of(const PreparedRun& prepared, const Reducer& reducer) {
  const Options& options = prepared.job.options;
  const BatchPlan& batch = prepared.state.batch;
  const PipelinePlace& place = prepared.plan.parallelism.place;
  RunFacts facts;
  facts.program = program_version();
  facts.device = prepared.backend->ops().traits().description;
  facts.gpu = prepared.job.on_gpu();
  facts.workers = options.data.workers;
  facts.global_batch = batch.global_batch;
  facts.shards = batch.shards;
  facts.steps_per_epoch = batch.steps_per_epoch;
  facts.reduction = batch.ranks == 1 ? "none, one rank" : std::string(to_string(reduction_of(options)));
  facts.overlaps = reducer.overlaps();
  facts.flops_per_sample = flops_per_sample(prepared.inputs.graph);
  const double bytes = options.distributed.gradient_precision == GradientPrecision::bf16 ? 2 : 4;
  for (const Bucket& bucket : reducer.buckets()) {
    facts.bucket_bytes.push_back(bytes * static_cast<double>(bucket.elements()));
  }
  facts.divisible = divisible_layers(prepared);
  for (int rank = 0; rank < prepared.job.size(); ++rank) {
    facts.samples.push_back(batch.rank_samples(rank / place.stages, batch.global_batch).size());
  }
  if (place.stages > 1) {
    const PipelineShape shape =
        pipeline_shape(options.distributed, batch, *prepared.backend, place.stages, prepared.job.size());
    const PipelinePlan& pipeline = prepared.plan.pipeline;
    facts.pipeline = {shape.stages, shape.micro_batches(), pipeline.names, pipeline.data_parallel.seconds};
  }
  return facts;
}

LoaderCounts loader_counts(const LoaderStatistics& statistics) {
  return {static_cast<double>(statistics.batches), static_cast<double>(statistics.ready), statistics.busy_seconds,
          statistics.cpu_seconds};
}

}  // namespace ddp
