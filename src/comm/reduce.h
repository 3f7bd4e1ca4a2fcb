// Sums of gradients over all ranks, in place.
//
//   std::vector<float> scratch(reduce_scratch_elements(Reduction::ring, gradient.size(), ranks.size()));
//   all_reduce_sum(ranks, gradient, Reduction::ring, scratch);   // bit-identical on every rank
//
// ring: reduce-scatter and all-gather along a ring (Patarasuk and Yuan: "Bandwidth optimal all-reduce algorithms for
//   clusters of workstations", J. Parallel Distrib. Comput. 69, 2009). Each rank sends and receives 2 (N-1)/N of the
//   data, where N is the number of ranks.
// root: rank 0 receives all the data, adds them in rank order and broadcasts the sum, as in textbook
//   examples. Rank 0's link carries N times the data, so it is slow; it serves as a baseline.
// tree: the sum over logical shards in one fixed order, independent of the number of ranks: shard_tree.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/reduction.h"
#include "comm/communicator.h"

namespace ddp {

// The number of scratch elements that all_reduce_sum() needs for `elements` of data.
std::size_t reduce_scratch_elements(Reduction algorithm, std::size_t elements, int ranks);

// Replaces `data` by its sum over all ranks; `algorithm` is ring or root. `data` has the same size on all ranks.
void all_reduce_sum(Communicator& communicator, std::span<float> data, Reduction algorithm, std::span<float> scratch);
// The same with internally allocated scratch memory.
void all_reduce_sum(Communicator& communicator, std::span<float> data, Reduction algorithm);

// sum[i] += addend[i]; the arrays do not overlap.
void add_to(float* __restrict sum, const float* __restrict addend, std::size_t elements);

}  // namespace ddp
