#include "train/parallel/pipeline.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text/text.h"
#include "comm/transport/group.h"

namespace ddp {
namespace {

std::vector<int> ranks_of_replica(const PipelinePlace& place) {
  std::vector<int> ranks;
  for (int stage = 0; stage < place.stages; ++stage) ranks.push_back(place.rank_of(place.replica, stage));
  return ranks;
}

std::vector<int> ranks_of_stage(const PipelinePlace& place) {
  std::vector<int> ranks;
  for (int replica = 0; replica < place.replicas; ++replica) ranks.push_back(place.rank_of(replica, place.stage));
  return ranks;
}

}  // namespace

PipelinePlace pipeline_place(int stages, int ranks, int rank) {
  check(ranks % stages == 0, ExitCode::usage,
        "--pipeline {} requires a number of ranks that it divides, here there {} {}; start {} ranks, or choose another "
        "number of stages",
        stages, ranks == 1 ? "is" : "are", counted(static_cast<std::uint64_t>(ranks), "rank"),
        (ranks / stages + 1) * stages);
  return {stages, ranks / stages, rank % stages, rank / stages};
}

std::int64_t shards_in_flight(const PipelinePlace& place, std::int64_t shards) {
  return std::min<std::int64_t>(shards, place.stages - place.stage);
}

std::vector<PipelineTask> pipeline_schedule(const PipelinePlace& place, std::int64_t shards) {
  std::vector<PipelineTask> tasks;
  const std::int64_t ahead = std::min<std::int64_t>(shards, place.stages - place.stage - 1);
  for (std::int64_t shard = 0; shard < ahead; ++shard) tasks.push_back({false, shard});
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    if (shard + ahead < shards) tasks.push_back({false, shard + ahead});
    tasks.push_back({true, shard});
  }
  return tasks;
}

PipelineRank::PipelineRank(const PipelinePlace& place, Communicator& ranks, std::vector<Range> held)
    : place_(place),
      held_(std::move(held)),
      replica_ranks_(make_group(ranks, ranks_of_replica(place))),
      stage_ranks_(make_group(ranks, ranks_of_stage(place))) {
  DDP_ASSERT(std::ssize(held_) == place.stages);
}

void PipelineRank::gather(std::span<float> flat) {
  for (int stage = 0; stage < place_.stages; ++stage) {
    const Range& part = held_[static_cast<std::size_t>(stage)];
    const std::span<float> values =
        flat.subspan(static_cast<std::size_t>(part.begin), static_cast<std::size_t>(part.size()));
    replica_ranks_->broadcast(std::as_writable_bytes(values), stage);
  }
}

double PipelineRank::sum_over_stages(const std::function<double(double)>& add) {
  double sum = 0;
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(&sum, 1));
  if (!place_.first()) replica_ranks_->receive(bytes, place_.stage - 1);
  sum = add(sum);
  if (!place_.last()) replica_ranks_->send(bytes, place_.stage + 1);
  replica_ranks_->broadcast(bytes, place_.stages - 1);
  return sum;
}

}  // namespace ddp
