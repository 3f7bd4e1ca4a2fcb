// The running statistics of batch normalisation. Each logical shard keeps its own, as if each shard had its own
// process; evaluations and model files use their mean over the shards, added in shard order, so that the result is
// bit-identical for any number of ranks.
//
//   ShardStatistics statistics(backend, graph, plan, rank);
//   network.forward(Pass::training, {parameters, statistics.of_shard(shard)}, stage.samples(0, count), results);
//   statistics.gather(ranks);                                          // collective, after a step
//   network.forward(Pass::evaluation, {parameters, statistics.mean()}, stage.samples(0, count), results);
//
// A rank has memory for its own shards only; those of all go to rank 0, which writes them, and come from there.
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
  // Initialises the statistics of all shards as defined by the graph. With `slow` each shard has a second, slow copy of
  // them, for Lookahead (optim/lookahead.h).
  ShardStatistics(Backend& backend, const Graph& graph, const BatchPlan& plan, int rank, bool slow = false);

  // With --pipeline: this rank updates only these floats of its shards; others have the rest.
  void update_only(Range part) { part_ = part; }

  // The statistics of one of this rank's shards, in the backend's memory. Like mean(), null for a network without batch
  // normalisation.
  float* of_shard(std::int64_t shard) const;
  // Floats of a shard.
  std::size_t count() const { return count_; }
  // The mean over the shards at the last gather(), in the backend's memory.
  float* mean() const { return count_ == 0 ? nullptr : mean_.at<float>(0); }

  // Collective: brings the statistics of all shards to rank 0, and their mean to all ranks.
  void gather(Communicator& ranks);
  // Collective: from rank 0 to all, after it has read shards_to_read() and the mean, or only the mean, with which then all
  // shards begin.
  void broadcast(Communicator& ranks);
  // Collective: from here on this rank has these shards; all keep their statistics.
  void divide(Communicator& ranks, Range mine);
  // Whether those of all shards were finite at the last gather(), slow copies included; the same on all ranks.
  bool finite() const { return finite_; }
  // Pulls the slow copies of this rank's shards (FlatMath::pull).
  void pull(float rest, const double* skip);
  // Initialises all shards with these values, slow copies included; for imported networks.
  void set(std::span<const float> values);

  // The mean in host memory, as of the last gather().
  std::span<const float> mean_values() const;
  // The same with the names of Graph::statistics().
  std::vector<TensorView> mean_views();
  // Enqueues a copy of this rank's statistics, unless `skip` says otherwise (FlatMath::copy), and puts the last one back: for
  // steps that are dropped.
  void keep(const double* skip);
  void put_back();
  // On rank 0, the state needed to continue training as of the last gather(): one tensor [shards][elements], with slow copies
  // [shards][2][elements]; or none.
  std::vector<TensorView> shard_views();
  // On rank 0: the same to be filled in, of a checkpoint with so many shards. If this run has another number of them, all begin
  // with the mean of the checkpoint's.
  std::vector<TensorView> shards_to_read(int shards);

 private:
  // Where a rank's rows are among those of all shards.
  struct Place {
    Range rows;
    Range part;  // of each row, and of its slow copy
  };
  std::size_t at(std::int64_t shard) const { return static_cast<std::size_t>(shard) * stride_; }
  std::vector<Place> gather_places(Communicator& ranks) const;
  void pack_part(std::vector<float>& packed) const;
  void unpack_part(const Place& place, std::span<const float> packed);
  void receive_rows(Communicator& ranks);
  void spread_rows(Communicator& ranks);
  void set_rows(std::span<const float> row);
  std::vector<float> mean_of_rows(int rows) const;
  void allocate();

  Backend& backend_;
  std::vector<Statistic> statistics_;
  std::size_t count_;   // floats per shard
  std::size_t stride_;  // the same with the slow copy
  int shards_;
  Range mine_;
  Range part_;
  Memory own_;   // the statistics of this rank's shards
  Memory kept_;  // a copy of these
  Memory mean_;
  std::unique_ptr<HostMirror> host_own_;
  std::unique_ptr<HostMirror> host_mean_;
  std::vector<float> all_;  // on rank 0: [shards][stride]; empty: not gathered yet
  int read_ = 0;            // shards of the checkpoint that all_ has, until broadcast()
  bool finite_ = true;
};

}  // namespace ddp
