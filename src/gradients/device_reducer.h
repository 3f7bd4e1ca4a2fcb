// The GradientReducer of a backend's memory: sums by a DeviceCommunicator, in the order of the backend's work.
//
//   std::unique_ptr<DeviceCommunicator> sums = gpus->make_nccl_communicator(ranks, *backend);
//   DeviceReducer reducer(ranks, *backend, sums.get(), {.buckets = plan_buckets(parameter_sizes), .shards = 8, ...});
//
// Note [Reduction on a device]
// A rank's own shards are added in the same fixed tree as by the Reducer of host memory, by work of the backend. During
// backward of the last shard each bucket that is ready is all-reduced at once; the communicator does so beside the
// backend's later work, so nothing here waits, and a step is enqueued as a whole.
//
// ReductionAlgorithm::ring leaves the sum over ranks to the DeviceCommunicator, in whatever order it adds. tree and
// root make it in host memory, by the same code as the Reducer and so with the same bits: finish() copies bucket after
// bucket to the host and back, overlaps nothing, and cannot be recorded.
//
// With ReducerConfig::bf16 a rank's sum of a bucket is rounded to bfloat16, travels and is added so, and is widened in
// finish(): half the bytes for a rounding of 2^-9 an addition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "comm/device_communicator.h"
#include "comm/shard_tree.h"
#include "gradients/gradient_reducer.h"
#include "gradients/reducer_config.h"

namespace ddp {

class DeviceReducer final : public GradientReducer {
 public:
  // Allocates everything that a step needs. Called by all ranks with the same configuration, with the same errors as
  // the Reducer's. `backend` and `sums` must outlive this; `sums` may be null where there is one rank. `ranks` need not
  // outlive the constructor.
  DeviceReducer(Communicator& ranks, Backend& backend, DeviceCommunicator* sums, ReducerConfig config);

  int local_shards() const override { return static_cast<int>(own_.merges.size()); }
  bool overlaps() const override { return overlaps_; }
  bool recordable() const override { return ranks_ == 1 || (!through_host() && sums_->recordable()); }
  void begin_step(std::int64_t step) override;
  float* shard_gradient() override;
  void ready(std::size_t parameter_begin) override;
  void shard_done() override;
  void finish() override;
  float* gradient() override { return buffer(0); }
  // In the order in which the DeviceCommunicator adds.
  void sum(double* values, std::size_t count) override;
  void wait() override;

 private:
  bool through_host() const { return config_.algorithm != ReductionAlgorithm::ring; }
  bool last_shard() const { return shards_done_ + 1 == local_shards(); }
  float* buffer(std::size_t index) const { return memory_.at<float>(0) + index * stride_; }
  std::size_t add_own_shards(int shard, std::size_t begin, std::size_t end);
  void reduce_bucket(std::size_t index);
  void reduce_in_host_memory(const Bucket& bucket);

  Backend& backend_;
  DeviceCommunicator* sums_;
  const ReducerConfig config_;
  const int ranks_;
  ShardTree tree_;
  const Accumulation own_;    // how this rank adds its own shards
  const std::size_t stride_;  // elements from one buffer to the next
  const bool overlaps_;
  Memory memory_;   // the buffers of own_; the first becomes the gradient
  Memory rounded_;  // the gradient in bfloat16, where it travels so

  std::int64_t step_ = 0;
  int shards_done_ = 0;
  bool in_shard_ = false;
  std::size_t in_use_ = 0;    // buffers that hold sums of earlier shards
  std::size_t launched_ = 0;  // buckets reduced in this step

  // Of sums in host memory: this rank's partial sums of a bucket, and room for those of others.
  std::unique_ptr<Communicator> channel_;
  Memory host_;
  std::vector<float*> partials_;
  std::vector<float> scratch_;
};

}  // namespace ddp
