// What the ranks must agree on to reduce gradients together.
//
//   ReducerConfig config{.algorithm = Reduction::ring, .overlap = true,
//                        .buckets = plan_buckets(parameter_sizes), .shards = 8, .elements = elements};
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/device_communicator.h"
#include "comm/shard_tree.h"
#include "gradients/buckets.h"

namespace ddp {

struct ReducerConfig {
  Reduction algorithm = Reduction::ring;
  bool overlap = true;
  std::vector<Bucket> buckets;  // from plan_buckets()
  int shards = 1;               // logical shards of the global batch, over all ranks; at least one a rank
  std::size_t elements = 0;     // of the flat gradient buffer
  bool bf16 = false;            // between ranks in bfloat16; ring only
};

// How this rank adds its own shards: as the tree does, or, where ranks are added in another order anyway, to one sum.
// Fewer shards than ranks are an Error(usage).
Accumulation plan_own_shards(const Communicator& communicator, const ReducerConfig& config);

// Buckets must follow one another from the end of the buffer to its beginning, and be the same on all ranks: else
// Error(internal), which names the rank that differs. Called by all ranks.
void check_buckets(Communicator& communicator, const ReducerConfig& config);

// "step 7, gradient bucket 1 of 3": where errors happened; `bucket` counts from 0.
std::string bucket_name(std::int64_t step, std::size_t bucket, const ReducerConfig& config);

// The elements from one buffer of a rank's shards to the next: each begins where memory may be cut.
std::size_t buffer_stride(std::size_t elements);

}  // namespace ddp
