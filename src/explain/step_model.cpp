#include "explain/step_model.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "explain/overlap.h"

namespace ddp {
namespace {

// The mean time of a sum over its shortest, on a network that nobody else uses.
constexpr double kSlackOfSums = 1.5;

}  // namespace

PipelineWaits pipeline_waits(const RunTiming& timing) {
  const PipelineFacts& pipeline = timing.facts.pipeline;
  const auto stages = static_cast<std::size_t>(pipeline.stages);
  PipelineWaits waits;
  waits.stages.resize(stages);
  const auto ranks = static_cast<double>(timing.ranks.size());
  const double ranks_of_stage = ranks / static_cast<double>(stages);
  double exposed = 0;
  double data_wait = 0;
  double longest_wait = 0;
  for (std::size_t rank = 0; rank < timing.ranks.size(); ++rank) {
    const RankTiming& each = timing.ranks[rank];
    const double steps = std::max(1.0, each.steps);
    data_wait += each.phases[Phase::data_wait] / steps / ranks;
    longest_wait = std::max(longest_wait, each.phases[Phase::data_wait] / steps);
    waits.stages[rank % stages] +=
        (each.phases[Phase::forward] + each.phases[Phase::backward]) / steps / ranks_of_stage;
    exposed += each.phases[Phase::exposed_communication] / steps / ranks;
  }
  // The others wait for the data as well.
  exposed = std::max(0.0, exposed - (longest_wait - data_wait));
  const auto count = static_cast<double>(pipeline.micro_batches);
  const double mean = std::accumulate(waits.stages.begin(), waits.stages.end(), 0.0) / static_cast<double>(stages);
  const double longest = *std::max_element(waits.stages.begin(), waits.stages.end());
  // One micro-batch passes through all stages; the longest stage computes all others meanwhile.
  waits.bubble = std::min(exposed, mean * static_cast<double>(stages - 1) / count);
  waits.imbalance = std::min(exposed - waits.bubble, (longest - mean) * (count - 1) / count);
  waits.rest = exposed - waits.bubble - waits.imbalance;
  return waits;
}

StepModel step_model(const RunTiming& timing) {
  DDP_ASSERT(!timing.ranks.empty() && timing.ranks[0].steps > 0);
  StepModel model;
  model.steps = timing.ranks[0].steps;
  const double scale = 1 / (model.steps * static_cast<double>(timing.ranks.size()));
  double exposed = 0;
  double least = std::numeric_limits<double>::infinity();
  double longest_wait = 0;
  for (const RankTiming& rank : timing.ranks) {
    const PhaseTotals& phases = rank.phases;
    model.data_wait += scale * phases[Phase::data_wait];
    model.compute += scale * (phases[Phase::forward] + phases[Phase::backward]);
    model.optimizer += scale * phases[Phase::optimizer];
    model.other += scale * phases[Phase::other];
    model.evaluation += scale * phases[Phase::evaluation];
    model.checkpoint += scale * phases[Phase::checkpoint];
    exposed += scale * phases[Phase::exposed_communication];
    least = std::min(least, phases[Phase::exposed_communication] / model.steps);
    longest_wait = std::max(longest_wait, phases[Phase::data_wait] / model.steps);
  }
  // A rank that was only delayed makes the others wait as well, so the network's part is not longer than its sums at
  // their fastest, with some allowance.
  const LinkModel link = link_model(timing);
  const double network = link.seconds > 0 ? std::min(least, kSlackOfSums * link.seconds) : least;
  model.communication = std::max(0.0, timing.facts.pipeline.stages > 1 ? pipeline_waits(timing).rest : network);
  model.imbalance = std::max(0.0, exposed - model.communication);
  // The others wait for the rank whose data come last. Equally slow loaders keep a distance by which one is always later.
  const double later = std::min(model.imbalance, longest_wait - model.data_wait);
  model.data_wait += later;
  model.imbalance -= later;
  return model;
}

namespace {

// Sums of the run's buckets, if backward ends at `before`.
std::vector<QueuedSum> queued_sums(const RunTiming& timing, double before) {
  std::vector<QueuedSum> sums;
  for (const BucketTiming& bucket : timing.buckets) {
    sums.push_back({std::clamp(bucket.ready / before, 0.0, 1.0), bucket.shortest});
  }
  return sums;
}

// What remains of `exposed` seconds of communication if backward ends not at `before` but at `after`.
double hidden_by_longer_backward(const RunTiming& timing, double exposed, double before, double after) {
  if (!timing.facts.overlaps || timing.buckets.empty() || before <= 0) return exposed;
  const std::vector<QueuedSum> sums = queued_sums(timing, before);
  const double modelled = exposed_sums(sums, before);
  if (exposed < modelled) return exposed * exposed_sums(sums, after) / modelled;
  return exposed_sums(sums, after, delay_of_sums(sums, before, exposed));
}

}  // namespace

StepModel with_batch(const RunTiming& timing, const StepModel& model, double factor, double batch_compute) {
  StepModel larger = model;
  larger.compute = batch_compute;
  larger.data_wait *= factor;
  larger.evaluation *= factor;
  larger.checkpoint *= factor;
  larger.communication = hidden_by_longer_backward(timing, model.communication, model.data_wait + model.compute,
                                                   larger.data_wait + larger.compute);
  return larger;
}

StepModel with_divided_layers(const RunTiming& timing, const StepModel& model) {
  const LinkModel link = link_model(timing);
  if (link.seconds <= 0 || link.bytes <= 0) return model;
  const auto ranks = static_cast<double>(timing.ranks.size());
  // A rank sends each byte of the gradients so many times in a ring.
  const double sent = 2 * (ranks - 1) / ranks;
  const double before = model.data_wait + model.compute;
  std::vector<QueuedSum> sums = queued_sums(timing, before);
  std::vector<QueuedSum> rest = sums;
  double divided = timing.facts.divisible.gradients / sent;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    const double bytes = timing.facts.bucket_bytes[i];
    const double gone = std::min(bytes, divided);
    divided -= gone;
    rest[i].seconds *= bytes > 0 ? 1 - gone / bytes : 1;
  }
  if (!timing.facts.overlaps) {
    for (std::vector<QueuedSum>* each : {&sums, &rest}) {
      for (QueuedSum& sum : *each) sum.ready = 1;
    }
  }
  const auto total = [](const std::vector<QueuedSum>& each) {
    double seconds = 0;
    for (const QueuedSum& sum : each) seconds += sum.seconds;
    return seconds;
  };
  const double delay = delay_of_sums(sums, before, model.communication) * total(rest) / total(sums);
  StepModel cured = model;
  cured.communication = std::min(model.communication, total(rest) > 0 ? exposed_sums(rest, before, delay) : 0) +
                        timing.facts.divisible.activations / (sent * link.bandwidth);
  return cured;
}

LinkModel link_model(const RunTiming& timing) {
  LinkModel link;
  if (timing.ranks.size() < 2 || timing.buckets.empty()) return link;
  for (std::size_t i = 0; i < timing.buckets.size(); ++i) {
    link.bytes += timing.facts.bucket_bytes[i];
    link.seconds += timing.buckets[i].shortest;
  }
  link.bandwidth = link.seconds > 0 ? link.bytes / link.seconds : 0;
  return link;
}

double predicted_data_wait(double busy, std::int64_t workers, double rest_of_step) {
  if (workers == 0) return busy;
  return std::max(0.0, busy / static_cast<double>(workers) - rest_of_step);
}

namespace {

// The processor time of a rank without its polling: in evaluations, checkpoints and waiting for other ranks or data, only
// the loader works.
double working_seconds(const RunTiming& timing, std::size_t rank) {
  const RankTiming& each = timing.ranks[rank];
  if (timing.facts.gpu) return each.cpu_seconds;  // there the phases are those of the GPU
  const double busy = rank_work(each.phases) - each.phases[Phase::data_wait];
  const double working = static_cast<double>(timing.facts.threads[rank]) * busy + each.loader.cpu_seconds;
  return std::min(each.cpu_seconds, working);
}

}  // namespace

double cpu_floor(const RunTiming& timing) {
  std::map<std::int64_t, double> seconds;
  double most = 0;
  for (std::size_t rank = 0; rank < timing.ranks.size(); ++rank) {
    const RankTiming& each = timing.ranks[rank];
    double& machine = seconds[timing.facts.machines[rank]];
    machine += working_seconds(timing, rank) / std::max(1.0, each.steps);
    most = std::max(most, machine / static_cast<double>(std::max<std::int64_t>(1, timing.facts.cpus[rank])));
  }
  return most;
}

SlowestRank slowest_rank(const RunTiming& timing) {
  SlowestRank slowest;
  double sum = 0;
  for (std::size_t rank = 0; rank < timing.ranks.size(); ++rank) {
    const RankTiming& each = timing.ranks[rank];
    const double seconds = rank_work(each.phases) / std::max(1.0, each.steps);
    sum += seconds;
    if (seconds > slowest.seconds) {
      slowest.rank = rank;
      slowest.seconds = seconds;
    }
  }
  const auto ranks = static_cast<double>(timing.ranks.size());
  slowest.mean = sum / ranks;
  if (ranks > 1) slowest.others = (sum - slowest.seconds) / (ranks - 1);
  return slowest;
}

}  // namespace ddp
