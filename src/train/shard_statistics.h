// The running statistics of batch normalisation. Each logical shard keeps its own, as each of N processes of one shard
// would; an evaluation and a model's file take their mean over the shards, added in the order of the shards, so that
// the number of ranks changes no bit.
//
//   ShardStatistics statistics(backend, graph, plan, rank);
//   network.forward(Pass::training, {parameters, statistics.of_shard(shard)}, ...);
//   statistics.gather(ranks);                                          // collective, after a step
//   network.forward(Pass::evaluation, {parameters, statistics.mean()}, ...);
#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/host_mirror.h"
#include "checkpoint/tensor_view.h"
#include "comm/communicator.h"
#include "model/graph.h"
#include "options/batch.h"

namespace ddp {

class ShardStatistics {
 public:
  // All as the graph begins them.
  ShardStatistics(Backend& backend, const Graph& graph, const BatchPlan& plan, int rank);

  // Of one of this rank's shards, in the backend's memory. Null for a network without batch normalisation, as below.
  float* of_shard(std::int64_t shard) const;
  // The mean over the shards at the last gather(), in the backend's memory.
  float* mean() const { return count_ == 0 ? nullptr : mean_.at<float>(0); }

  // Collective: tells all ranks the statistics of all shards, and takes their mean.
  void gather(Communicator& ranks);
  // Collective: the other way, after rank 0's views were read from a checkpoint.
  void broadcast(Communicator& ranks);
  // Begins all shards with these; for imported networks.
  void set(std::span<const float> values);

  // The mean by the names of Graph::statistics(), in the host's memory, as of the last gather().
  std::vector<TensorView> mean_views();
  // What training goes on with: one tensor [shards][elements], or none.
  std::vector<TensorView> shard_views();

 private:
  std::span<float> row(std::int64_t shard) { return std::span(all_).subspan(at(shard), count_); }
  std::size_t at(std::int64_t shard) const { return static_cast<std::size_t>(shard) * count_; }
  void push();

  std::vector<Statistic> statistics_;
  std::size_t count_;  // floats of one shard
  int shards_;
  Range mine_;
  Memory own_;  // of this rank's shards
  Memory mean_;
  std::unique_ptr<HostMirror> host_own_;
  std::unique_ptr<HostMirror> host_mean_;
  std::vector<float> all_;  // [shards][count]
};

}  // namespace ddp
