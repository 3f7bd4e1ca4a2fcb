// How the gradients of a run are summed over the ranks: the size of buckets, and the settings of the reducer.
//
//   const BucketSize size = choose_bucket_bytes(options, /*gradient_bytes=*/45 << 20, *link, ranks.size(), /*resumed=*/{});
//   Reducer own(ranks, backend, sums, reducer_config(options, graph, parallelism, size.bytes, plan, /*share=*/nullptr));
#pragma once

#include <cstddef>
#include <optional>

#include "checkpoint/state.h"
#include "comm/host_share.h"
#include "gradients/bucket_size.h"
#include "gradients/buckets.h"
#include "gradients/reducer_config.h"
#include "model/graph.h"
#include "options/batch.h"
#include "options/options.h"
#include "train/parallel/parallelism.h"

namespace ddp {

struct BucketSize {
  std::size_t bytes = kBucketBytes;  // if --bucket-mib is 0
  int measured_ranks = 0;  // on which it was measured by this run, or by the one that it continues; 0: by none
};

// The gradients that this rank sums with others in a step, as they are sent.
std::size_t gradient_bytes(const DistributedOptions& options, const Graph& graph, const Parallelism& parallelism);

// The size for so many ranks: the one that the resumed run measured on as many, otherwise the best for the link; without a
// link, the default.
BucketSize choose_bucket_bytes(const Options& options, std::size_t gradient_bytes, const std::optional<LinkSpeed>& link,
                               int ranks, const std::optional<TrainingState>& resumed);

// For the number of shards that each rank has in `batch`. `share`: null if no state is shared; it must outlive the result.
ReducerConfig reducer_config(const Options& run, const Graph& graph, const Parallelism& parallelism,
                             std::size_t bucket_bytes, const BatchPlan& batch, HostShare* share);

}  // namespace ddp
