#include "train/parallel/pipeline_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/clock.h"
#include "base/error.h"
#include "base/status/position.h"
#include "base/text/text.h"

namespace ddp {
namespace {

constexpr const char* kExchange = "the exchange of activations between pipeline stages";

}  // namespace

PipelineRun::PipelineRun(PipelineRank& rank, Communicator& ranks, std::int64_t shards, bool mixed)
    : rank_(rank), ranks_(ranks.duplicate()), tasks_(pipeline_schedule(rank.place(), shards)), mixed_(mixed) {
  DDP_ASSERT(std::ssize(rank.networks) == shards_in_flight(rank.place(), shards));
}

void PipelineRun::share_labels(Batch& batch) {
  seconds_ = {};
  const double begin = now();
  move_labels(batch);
  seconds_.exchange = now() - begin;
  waited_ += seconds_.exchange;
}

void PipelineRun::move_labels(Batch& batch) {
  const PipelinePlace& place = rank_.place();
  if (batch.count == 0 || !(place.first() || place.last())) return;
  const std::size_t messages = mixed_ ? 3 : 1;
  if (place.first()) {
    const int to = place.stages - 1;
    const std::array<Outgoing, 3> all = {Outgoing{std::as_bytes(batch.labels), to},
                                         Outgoing{std::as_bytes(batch.other_labels), to},
                                         Outgoing{std::as_bytes(batch.label_weights), to}};
    rank_.replica_ranks().exchange(std::span(all).first(messages), {}, kExchange);
    return;
  }
  const auto samples = static_cast<std::size_t>(batch.count);
  labels_.resize(samples);
  other_labels_.resize(mixed_ ? samples : 0);
  label_weights_.resize(mixed_ ? samples : 0);
  const std::array<Incoming, 3> all = {Incoming{std::as_writable_bytes(std::span(labels_)), 0},
                                       Incoming{std::as_writable_bytes(std::span(other_labels_)), 0},
                                       Incoming{std::as_writable_bytes(std::span(label_weights_)), 0}};
  rank_.replica_ranks().exchange({}, std::span(all).first(messages), kExchange);
  batch.labels = labels_;
  batch.other_labels = other_labels_;
  batch.label_weights = label_weights_;
}

// An empty message is empty on both sides, and is not sent.
void PipelineRun::exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) {
  const Outgoing outgoing{out, to};
  const Incoming incoming{in, from};
  const double begin = now();
  rank_.replica_ranks().exchange(std::span(&outgoing, out.empty() ? 0 : 1), std::span(&incoming, in.empty() ? 0 : 1),
                                 kExchange);
  seconds_.exchange += now() - begin;
  waited_ += now() - begin;
  bytes_sent_ += out.size();
}

void PipelineRun::pass(const std::function<std::int64_t(std::int64_t shard)>& samples, const Pass& forward,
                       const Pass& backward) {
  const PipelinePlace& place = rank_.place();
  const auto network_of = [this](const PipelineTask& task) -> Network& {
    return *rank_.networks[static_cast<std::size_t>(task.shard) % rank_.networks.size()];
  };
  // What a task reads from a neighbour, and what it gives to one.
  const auto input_of = [&](const PipelineTask& task) -> std::span<std::byte> {
    const bool comes = task.backward ? !place.last() : !place.first();
    if (!comes) return {};
    Network& network = network_of(task);
    return task.backward ? network.prepare_outgoing_gradient(samples(task.shard))
                         : network.prepare_incoming(samples(task.shard));
  };
  const auto output_of = [&](const PipelineTask& task) -> std::span<const std::byte> {
    const bool goes = task.backward ? !place.first() : !place.last();
    if (!goes) return {};
    const Network& network = network_of(task);
    return task.backward ? network.incoming_gradient(samples(task.shard)) : network.outgoing(samples(task.shard));
  };
  const auto before = [&](const PipelineTask& task) { return place.stage + (task.backward ? 1 : -1); };
  const auto after = [&](const PipelineTask& task) { return place.stage + (task.backward ? -1 : 1); };

  if (!tasks_.empty()) exchange({}, 0, input_of(tasks_.front()), before(tasks_.front()));
  for (std::size_t t = 0; t < tasks_.size(); ++t) {
    const PipelineTask& task = tasks_[t];
    const double begin = now();
    note_phase(task.backward ? WorkPhase::backward : WorkPhase::forward);
    (task.backward ? backward : forward)(network_of(task), task.shard);
    (task.backward ? seconds_.backward : seconds_.forward) += now() - begin;
    const bool more = t + 1 < tasks_.size();
    const PipelineTask& next = tasks_[more ? t + 1 : t];
    exchange(output_of(task), after(task), more ? input_of(next) : std::span<std::byte>(), before(next));
  }
}

std::string PipelineRun::summary(Communicator& ranks, std::int64_t steps, double seconds,
                                 const PipelinePlan& plan) const {
  const auto size = static_cast<std::size_t>(ranks.size());
  std::vector<double> sent(size);
  std::vector<double> waited(size);
  sent[static_cast<std::size_t>(ranks.rank())] = static_cast<double>(bytes_sent_);
  waited[static_cast<std::size_t>(ranks.rank())] = 100 * waited_ / seconds;
  ranks.all_reduce(sent, ReduceOp::sum);
  ranks.all_reduce(waited, ReduceOp::sum);
  const auto [least, most] = std::minmax_element(waited.begin(), waited.end());
  const auto per_step = std::accumulate(sent.begin(), sent.end(), 0.0) / static_cast<double>(steps);
  const auto count = [](double bytes) { return format_count(static_cast<std::uint64_t>(bytes)); };
  return fmt::format(
      "all ranks together sent {} bytes of activations per step and {} of gradients, instead of {} of gradients; ranks "
      "waited for other stages, or sent to them, {:.0f}% to {:.0f}% of the time",
      count(per_step), count(plan.pipeline.gradient_bytes), count(plan.data_parallel.gradient_bytes), *least, *most);
}

}  // namespace ddp
