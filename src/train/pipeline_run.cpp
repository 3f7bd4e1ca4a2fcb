#include "train/pipeline_run.h"

#include <array>

#include "base/clock.h"
#include "base/error.h"
#include "base/position.h"

namespace ddp {
namespace {

constexpr const char* kExchange = "the exchange of activations between pipeline stages";

template <class T>
std::span<const T> fitted(std::vector<T>& values, std::span<const T> like) {
  values.resize(like.size());
  return values;
}

}  // namespace

PipelineRun::PipelineRun(PipelineRank& rank, Communicator& ranks, std::int64_t shards)
    : rank_(rank), ranks_(ranks.duplicate()), tasks_(pipeline_schedule(rank.place(), shards)) {
  DDP_ASSERT(std::ssize(rank.networks) == shards_in_flight(rank.place(), shards));
}

void PipelineRun::share_labels(Batch& batch) {
  const PipelinePlace& place = rank_.place();
  if (batch.count == 0 || !(place.first() || place.last())) return;
  if (place.first()) {
    const std::array<Outgoing, 3> all = {Outgoing{std::as_bytes(batch.labels), place.stages - 1},
                                         Outgoing{std::as_bytes(batch.other_labels), place.stages - 1},
                                         Outgoing{std::as_bytes(batch.label_weights), place.stages - 1}};
    rank_.replica_ranks().exchange(std::span(all).first(batch.other_labels.empty() ? 1 : 3), {}, kExchange);
    return;
  }
  batch.labels = fitted(labels_, batch.labels);
  batch.other_labels = fitted(other_labels_, batch.other_labels);
  batch.label_weights = fitted(label_weights_, batch.label_weights);
  const std::array<Incoming, 3> all = {Incoming{std::as_writable_bytes(std::span(labels_)), 0},
                                       Incoming{std::as_writable_bytes(std::span(other_labels_)), 0},
                                       Incoming{std::as_writable_bytes(std::span(label_weights_)), 0}};
  rank_.replica_ranks().exchange({}, std::span(all).first(other_labels_.empty() ? 1 : 3), kExchange);
}

// An empty message is empty on both sides, and is not sent.
void PipelineRun::exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) {
  const Outgoing outgoing{out, to};
  const Incoming incoming{in, from};
  const double begin = now();
  rank_.replica_ranks().exchange(std::span(&outgoing, out.empty() ? 0 : 1), std::span(&incoming, in.empty() ? 0 : 1),
                                 kExchange);
  seconds_.exchange += now() - begin;
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

  seconds_ = {};
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
  waited_ += seconds_.exchange;
}

}  // namespace ddp
