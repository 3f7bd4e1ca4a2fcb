// A network divided into consecutive parts on as many ranks, --pipeline: which rank has which part, and in what order it
// processes the shards of its replica.
//
//   const PipelinePlace place = pipeline_place(/*stages=*/2, ranks.size(), ranks.rank());
//   PipelineRank mine(place, ranks, {{0, 25000}, {25000, 430000}});   // the parts of the flat buffer
//   for (const PipelineTask& task : pipeline_schedule(place, /*shards=*/4)) ...
//   mine.gather(weights);                                             // now they are whole
//
// Note [Who has what]
// N ranks are N / K replicas of K stages each. Rank r is stage r % K of replica r / K, so that the stages of a replica are
// neighbours, on one host where possible. Replicas divide the logical shards as ranks do without a pipeline
// (options/batch.h); each shard of a replica passes through all its stages. The ranks that have the same part sum its
// gradient, and update it alike. All ranks have memory for the whole parameters and the state of the optimizer; within steps
// a rank reads and updates its part only. Outside of steps they are gathered first, so that checkpoints, evaluations and
// hashes see them whole.
//
// Note [The order of tasks]
// One forward, one backward (Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019;
// without its stale weights, as Fan et al., "DAPPLE", PPoPP 2021): a stage begins with as many forward passes as there are
// stages behind it, then alternates, so that it keeps activations of at most stages - stage shards. Backward passes come in
// the order of the shards, so that their gradients are added as without a pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/partition.h"
#include "comm/communicator.h"
#include "model/network.h"

namespace ddp {

struct PipelinePlace {
  int stages = 1;
  int replicas = 1;
  int stage = 0;
  int replica = 0;

  bool first() const { return stage == 0; }
  bool last() const { return stage + 1 == stages; }
  int rank_of(int of_replica, int of_stage) const { return of_replica * stages + of_stage; }
};

// Throws Error(usage) if the stages do not divide the ranks.
PipelinePlace pipeline_place(int stages, int ranks, int rank);

struct PipelineTask {
  bool backward = false;
  std::int64_t shard = 0;  // of the replica, from 0

  friend bool operator==(const PipelineTask&, const PipelineTask&) = default;
};

std::vector<PipelineTask> pipeline_schedule(const PipelinePlace& place, std::int64_t shards);
// The shards whose activations a stage keeps at once.
std::int64_t shards_in_flight(const PipelinePlace& place, std::int64_t shards);

class PipelineRank {
 public:
  // Collective. `held`: what each stage has of the flat buffer.
  PipelineRank(const PipelinePlace& place, Communicator& ranks, std::vector<Range> held);

  const PipelinePlace& place() const { return place_; }
  // What this rank has of the flat buffer.
  const Range& held() const { return held_[static_cast<std::size_t>(place_.stage)]; }
  // The stages of this replica, and the ranks that have the same part.
  Communicator& replica_ranks() { return *replica_ranks_; }
  Communicator& stage_ranks() { return *stage_ranks_; }

  // Collective: a whole flat buffer, from the stages of this replica.
  void gather(std::span<float> flat);
  // Collective within the replica: the sum over its stages, added in their order.
  double sum_over_stages(const std::function<double(double)>& add);

  // This rank's part, as often as it keeps shards.
  std::vector<std::unique_ptr<Network>> networks;

 private:
  PipelinePlace place_;
  std::vector<Range> held_;
  std::unique_ptr<Communicator> replica_ranks_;
  std::unique_ptr<Communicator> stage_ranks_;
};

}  // namespace ddp
