// The GradientReducer of host memory: sums over any Communicator, on a thread of its own beside backward.
//
//   Reducer reducer(ranks, {.algorithm = ReductionAlgorithm::ring, .overlap = true,
//                           .buckets = plan_buckets(parameter_sizes), .shards = 8, .elements = elements});
//
// Note [When a bucket is reduced]
// The shards of a rank are added up as they come, in the fixed tree of comm/shard_tree.h. During backward of the last
// one each bucket goes to the reducer's thread as soon as it is ready. The thread adds what is left of the rank's own
// shards and reduces the sum over the ranks, bucket by bucket in the order of the plan, which is the same on all ranks.
// The plan's last bucket becomes ready when backward ends and can hide behind nothing: finish() reduces it itself, so
// that a model of one bucket pays for no thread. Without overlap finish() reduces all of them.
//
// Note [What is bit-identical]
// ReductionAlgorithm::tree gives the same bits for any number of ranks. ring and root add a rank's own shards in the
// same kind of tree, but across ranks in another order. Overlap never changes a bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/communicator.h"
#include "gradients/gradient_reducer.h"
#include "gradients/reducer_config.h"

namespace ddp {

class Reducer final : public GradientReducer {
 public:
  // Allocates everything that a step needs. Called by all ranks with the same configuration, else Error(internal) names
  // the rank that differs; fewer shards than ranks are an Error(usage). `communicator` need not outlive the
  // constructor.
  Reducer(Communicator& communicator, ReducerConfig config);
  // Frees the thread, too, if it waits for ranks that will not come.
  ~Reducer() override;
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  int local_shards() const override;
  bool overlaps() const override;
  bool recordable() const override { return false; }
  void begin_step(std::int64_t step) override;
  float* shard_gradient() override;
  void ready(std::size_t parameter_begin) override;
  void shard_done() override;
  // Waits until all buckets are reduced, and throws what went wrong, naming step and bucket.
  void finish() override;
  float* gradient() override;
  void sum(double* values, std::size_t count) override;
  void wait() override {}

  // Of the last step: the seconds that finish() took, and the seconds that the reduction took wherever it ran. Their
  // difference was hidden behind backward.
  double exposed_seconds() const;
  double communication_seconds() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddp
