// Sums the gradients of all logical shards over all ranks, while backward still runs.
//
//   ReducerConfig config{.buckets = plan_buckets(parameter_sizes), .shards = 8, .elements = elements};
//   Reducer reducer(ranks, backend, sums, config);
//   reducer.begin_step(step);
//   for (int shard = 0; shard < reducer.local_shards(); ++shard) {
//     float* gradient = reducer.shard_gradient();
//     backward(gradient, [&](std::size_t begin) { reducer.ready(begin); });
//     reducer.shard_done();
//   }
//   reducer.finish();
//   optimizer.update(parameters, reducer.gradient(), control, skip);   // the sum over all shards of all ranks
//   reducer.wait();
//
// The reducer decides what is added and when; the DeviceCommunicator knows where memory resides and how ranks
// communicate. All memory belongs to the backend, and all work is ordered by its queue (Note [Order of work] in
// backend/device_queue.h).
//
// Note [When a bucket is reduced]
// The shards of a rank are added as they complete, in the fixed tree of comm/sums/shard_tree.h. During backward of the last
// shard, the all-reduce of each bucket starts as soon as the bucket is ready, in the order of the plan, which is the
// same on all ranks. The last bucket becomes ready when backward ends, so its all-reduce cannot be overlapped. Without
// overlap, finish() starts all of them.
//
// Note [What is bit-identical]
// Reduction::tree gives the same bits for any number of ranks. ring and root add a rank's own shards in the same kind
// of tree, but sum across ranks in a different order. Overlap does not affect the result.
//
// With ReducerConfig::bf16 a rank's sum of a bucket is rounded to bfloat16, sent and added in that format, and
// converted to fp32 in finish(): half the traffic, at a rounding error of 2^-8 per addition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "comm/sums/device_communicator.h"
#include "comm/sums/shard_tree.h"
#include "gradients/reducer_config.h"

namespace ddp {

class Reducer {
 public:
  // Collective. Allocates everything that a step needs. Throws Error(internal) naming the rank whose configuration
  // differs, and Error(usage) for fewer shards than ranks. `backend` and `sums` must outlive this object; `sums` must
  // use the algorithm of the configuration. `ranks` need not outlive the constructor.
  Reducer(Communicator& ranks, Backend& backend, DeviceCommunicator& sums, ReducerConfig config);

  // The number of shards that this rank processes in a step.
  int local_shards() const { return static_cast<int>(own_.merges.size()); }
  // Whether any bucket is reduced while backward runs; false with a single rank or a single bucket.
  bool overlaps() const { return overlaps_; }
  // Whether the reduction of a step can be captured in a Recording.
  bool recordable() const { return sums_.recordable(); }

  // Begins a step; its number appears in errors.
  void begin_step(std::int64_t step);
  // The buffer for the gradient of the next shard: all elements of the flat buffer, uninitialised, aligned to
  // kMemoryAlignment bytes. Elements that no backward ever writes are zero, in the sums too. Valid until shard_done().
  float* shard_gradient();
  // Backward of the current shard has finished all gradient elements from `parameter_begin` to the end of the buffer.
  void ready(std::size_t parameter_begin);
  // Backward of the current shard has finished.
  void shard_done();
  // Called after the last shard: work enqueued afterwards sees the sums.
  void finish();
  // The sum over all shards of all ranks, from finish() until the next shard_gradient(). Undefined elsewhere
  // than in updated_ranges() unless ReducerConfig::whole().
  float* gradient() { return buffer(0); }

  // The times of the buckets of the last step, in their order; empty if the host does not sum them.
  std::span<const SumTimes> bucket_times() const { return sums_.sum_times(); }
  std::span<const Bucket> buckets() const { return config_.buckets; }

  const ReducerConfig& config() const { return config_; }

  // Replaces a few values by their sums over the ranks, bit-identical on all ranks; called between finish() and wait().
  void sum(double* values, std::size_t count);
  // Ends a step: the host waits for all enqueued work; throws any error, naming the step.
  void wait();
  // Ends step `step`, while later ones may have begun: the host waits for the work before this event of the queue.
  void wait_for(DeviceEvent& event, std::int64_t step);

 private:
  bool last_shard() const { return shards_done_ + 1 == local_shards(); }
  float* buffer(std::size_t index) const { return memory_.at<float>(0) + index * stride_; }
  static std::string name_of(std::int64_t step);
  std::string step_name() const { return name_of(step_); }
  std::size_t add_own_shards(int shard, std::size_t begin, std::size_t end);
  void reduce_next_bucket();
  void add_kept();

  Backend& backend_;
  DeviceCommunicator& sums_;
  const ReducerConfig config_;
  const int rank_count_;
  const Accumulation own_;    // how this rank adds its own shards
  const std::size_t stride_;  // elements from one buffer to the next
  const bool overlaps_;
  Memory memory_;                      // the buffers of own_; the first becomes the gradient
  Memory rounded_;                     // the gradient in bfloat16, if it is sent in that format
  std::vector<Range> rounded_ranges_;  // whose sums this rank gets in that format
  std::vector<float*> partials_;

  std::int64_t step_ = 0;
  int shards_done_ = 0;
  bool in_shard_ = false;
  std::size_t in_use_ = 0;    // buffers that hold sums of earlier shards
  std::size_t launched_ = 0;  // buckets whose sums have begun in this step
};

}  // namespace ddp
