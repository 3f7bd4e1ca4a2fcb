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
//   optimizer.update(reducer.gradient());   // the sum over all shards of all ranks
//   reducer.wait();
//
// The reducer decides what is added and when; where memory lies and how ranks talk is the DeviceCommunicator's. All
// memory is the backend's, and all work follows the order of its work (Note [Order of work] in backend/device_queue.h).
//
// Note [When a bucket is reduced]
// The shards of a rank are added up as they come, in the fixed tree of comm/shard_tree.h. During backward of the last
// one the sum over the ranks of each bucket begins as soon as it is ready, in the order of the plan, which is the same
// on all ranks. The last bucket becomes ready when backward ends and can hide behind nothing. Without overlap finish()
// begins all of them.
//
// Note [What is bit-identical]
// Reduction::tree gives the same bits for any number of ranks. ring and root add a rank's own shards in the
// same kind of tree, but across ranks in another order. Overlap never changes a bit.
//
// With ReducerConfig::bf16 a rank's sum of a bucket is rounded to bfloat16, travels and is added so, and is widened in
// finish(): half the bytes for a rounding of 2^-9 an addition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "comm/device_communicator.h"
#include "comm/shard_tree.h"
#include "gradients/reducer_config.h"

namespace ddp {

class Reducer {
 public:
  // Allocates everything that a step needs. Called by all ranks with the same configuration, else Error(internal) names
  // the rank that differs; fewer shards than ranks are an Error(usage). `backend` and `sums` must outlive this; `sums`
  // adds in the order of the configuration. `ranks` need not outlive the constructor.
  Reducer(Communicator& ranks, Backend& backend, DeviceCommunicator& sums, ReducerConfig config);

  // How many shards this rank works through in a step.
  int local_shards() const { return static_cast<int>(own_.merges.size()); }
  // Whether any bucket is reduced while backward runs; false with one rank, or where one bucket is all.
  bool overlaps() const { return overlaps_; }
  // Whether a step's reduction can be part of a Recording.
  bool recordable() const { return sums_.recordable(); }

  // Begins a step; its number appears in errors.
  void begin_step(std::int64_t step);
  // Where backward of the next shard writes its gradient: all elements of the flat buffer, at a multiple of
  // kMemoryAlignment bytes, with no meaningful content, to be overwritten. Valid until shard_done().
  float* shard_gradient();
  // Backward of the current shard has finished all gradient elements from `parameter_begin` to the end of the buffer.
  void ready(std::size_t parameter_begin);
  // Backward of the current shard has finished.
  void shard_done();
  // After the last shard: what is enqueued from here on sees the sums.
  void finish();
  // The sum over all shards of all ranks, from finish() until the next shard_gradient().
  float* gradient() { return buffer(0); }

  // Replaces a few values by their sums over the ranks, the same bits on all of them; between finish() and wait().
  void sum(double* values, std::size_t count);
  // The host waits for all that was enqueued; throws what went wrong, naming the step. The end of a step.
  void wait();

 private:
  bool last_shard() const { return shards_done_ + 1 == local_shards(); }
  float* buffer(std::size_t index) const { return memory_.at<float>(0) + index * stride_; }
  std::string step_name() const;
  std::size_t add_own_shards(int shard, std::size_t begin, std::size_t end);
  void reduce_next_bucket();

  Backend& backend_;
  DeviceCommunicator& sums_;
  const ReducerConfig config_;
  const int rank_count_;
  const Accumulation own_;    // how this rank adds its own shards
  const std::size_t stride_;  // elements from one buffer to the next
  const bool overlaps_;
  Memory memory_;   // the buffers of own_; the first becomes the gradient
  Memory rounded_;  // the gradient in bfloat16, where it travels so
  std::vector<float*> partials_;

  std::int64_t step_ = 0;
  int shards_done_ = 0;
  bool in_shard_ = false;
  std::size_t in_use_ = 0;    // buffers that hold sums of earlier shards
  std::size_t launched_ = 0;  // buckets whose sums have begun in this step
};

}  // namespace ddp
