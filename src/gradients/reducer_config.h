// The reduction settings on which all ranks must agree.
//
//   ReducerConfig config{.algorithm = Reduction::ring, .overlap = true,
//                        .buckets = plan_buckets(parameter_sizes), .shards = 8, .elements = elements};
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/partition.h"
#include "comm/communicator.h"
#include "comm/sums/device_communicator.h"
#include "comm/sums/shard_tree.h"
#include "gradients/buckets.h"

namespace ddp {

struct ReducerConfig {
  Reduction algorithm = Reduction::ring;
  bool overlap = true;
  std::vector<Bucket> buckets;  // from plan_buckets()
  int shards = 1;               // logical shards of the global batch, over all ranks; at least one per rank
  std::size_t elements = 0;     // of the flat gradient buffer
  bool bf16 = false;            // send gradients in bfloat16; ring only
  std::vector<std::int64_t> shard_counts = {};  // of each rank; empty: as many for each, up to one
  // What is in no bucket: its gradient is the sum over this rank's shards.
  std::vector<Range> kept = {};
  // The part of each bucket's elements that this rank updates, the only ones of which it gets the sum with SumOrder::scatter.
  // Empty: all.
  std::function<Range(std::int64_t elements)> part = {};

  // Whether each rank gets all sums. Those of the tree are needed for a norm with the same bits on any number of ranks.
  bool whole() const { return !part || algorithm == Reduction::tree; }
};

// The elements of the flat buffer that this rank updates, but for those in no bucket; in the order of the buffer.
std::vector<Range> updated_ranges(const ReducerConfig& config);

// How this rank adds its own shards: as the tree does, or into a single sum if the ranks are summed in another order
// anyway. Throws Error(usage) for fewer shards than ranks.
Accumulation plan_own_shards(const Communicator& communicator, const ReducerConfig& config);

// Collective. Checks that the buckets lie one before the other from the end of the buffer to its beginning, that they hold
// all elements but those that are kept, and that they are the same on all ranks; throws Error(internal) naming the rank
// that differs.
void check_buckets(Communicator& communicator, const ReducerConfig& config);

// "step 7, gradient bucket 1 of 3": the location of an error; `bucket` counts from 0.
std::string bucket_name(std::int64_t step, std::size_t bucket, const ReducerConfig& config);

// The distance in elements between a rank's shard buffers, rounded up for alignment.
std::size_t buffer_stride(std::size_t elements);

}  // namespace ddp
