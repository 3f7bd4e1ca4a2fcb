// The passes of one step on one rank of a pipeline, and what its stages send each other.
//
//   PipelineRun run(pipeline, ranks, /*shards=*/4);
//   run.share_labels(loaded);                    // from the first stage, which reads the images, to the last
//   run.pass(samples_of_shard, forward, backward);
//   run.sum_message(message);                    // over all ranks
//
// Each send waits for the neighbour to receive, together with what this rank receives next, so that one exchange follows
// each pass. Nothing is sent beside computation. The waits are bounded as all others are (comm/communicator.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "data/pipeline/loader.h"
#include "train/parallel/pipeline.h"
#include "train/parallel/pipeline_plan.h"

namespace ddp {

// Seconds of a step.
struct PipelineSeconds {
  double forward = 0;
  double backward = 0;
  double exchange = 0;  // waiting for other stages, and sending
};

class PipelineRun {
 public:
  // Collective. `shards` are those of this rank's replica; `mixed`: samples have two labels. `rank` must outlive this object.
  PipelineRun(PipelineRank& rank, Communicator& ranks, std::int64_t shards, bool mixed = false);

  const PipelinePlace& place() const { return rank_.place(); }
  // This rank's part.
  Network& network() const { return *rank_.networks.front(); }

  // Begins a step: the last stage gets the labels that the first one has read, valid until the next call.
  void share_labels(Batch& batch);

  // A pass of the shard with this number in the replica.
  using Pass = std::function<void(Network& network, std::int64_t shard)>;
  // All passes of a step, in the order of the schedule. `samples(shard)`: how many it has.
  void pass(const std::function<std::int64_t(std::int64_t shard)>& samples, const Pass& forward, const Pass& backward);

  // Replaces the values by their sums over all ranks.
  void sum_message(std::span<double> values) { ranks_->tree_sum(values); }

  // The times of the last step.
  const PipelineSeconds& seconds() const { return seconds_; }
  // What this rank has sent to other stages of its replica, since the beginning.
  std::uint64_t bytes_sent() const { return bytes_sent_; }
  // Collective: what all ranks have sent in so many steps, and how long they waited in so many seconds.
  std::string summary(Communicator& ranks, std::int64_t steps, double seconds, const PipelinePlan& plan) const;

 private:
  void move_labels(Batch& batch);
  void exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from);

  PipelineRank& rank_;
  std::unique_ptr<Communicator> ranks_;
  std::vector<PipelineTask> tasks_;
  bool mixed_;
  PipelineSeconds seconds_;
  std::uint64_t bytes_sent_ = 0;
  double waited_ = 0;
  // What the last stage receives.
  std::vector<std::int32_t> labels_;
  std::vector<std::int32_t> other_labels_;
  std::vector<float> label_weights_;
};

}  // namespace ddp
