// The sum over logical shards in one fixed binary tree: the same bits on any number of ranks.
//
//   ShardTree tree(/*shards=*/8, ranks.size(), ranks.rank());
//   ...   // this rank adds its own shards as specified by tree.accumulation()
//   tree.all_reduce_sum(ranks, partials, elements, scratch);   // the sum over all 8 shards, in partials[0]
//
// Note [One tree for any number of ranks]
// Float addition is not associative, so a sum has the same bits only if the same pairs are added. The tree over V
// shards fixes the pairs: the node over the shards [lo, hi) is the sum of its children [lo, m) and [m, hi), where m -
// lo is the largest power of two smaller than hi - lo. For V = 5:
//
//            [0,5)
//           /     |
//        [0,4)    |
//        /   \    |
//    [0,2) [2,4)  |
//     / \   / \   |
//    0   1 2   3  4
//
// A rank owns a consecutive run of shards and adds up every node that lies wholly in its run; the largest of these are
// its partial sums. With 5 shards on 2 ranks, rank 0 owns 0, 1, 2 and holds the partial sums [0,2) and [2,3); rank 1
// owns 3, 4 and holds [3,4) and [4,5). The nodes that span several ranks remain. The ranks add these as in a
// reduce-scatter: each takes a slice of the elements, receives every rank's partial sums of it, adds the rest of the
// tree, and sends its slice to all. If the runs are nodes of the tree (both numbers are powers of two), each rank holds
// one partial sum, and the traffic is that of a ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/partition.h"
#include "comm/communicator.h"

namespace ddp {

// The boundary between the children of a node with at least two shards.
std::int64_t tree_split(Range node);

// The largest nodes of the tree over `shards` shards that lie wholly in `run`, from left to right.
std::vector<Range> partial_sums(std::int64_t shards, Range run);

// How a rank adds its run of shards, in a stack of buffers: each shard is written to the first free buffer; then,
// `merges` times, the last buffer in use is added to the one before it and freed.
struct Accumulation {
  std::vector<int> merges;    // for each shard of the run
  std::size_t buffers = 0;    // the maximum in use at once; about log2(shards) + 1
  std::size_t remaining = 0;  // in use at the end: one for each partial sum
};
Accumulation plan_accumulation(std::int64_t shards, Range run);

class ShardTree {
 public:
  // 1 <= ranks <= shards: no rank is without work.
  // `counts`: the shards of each rank, at least one; empty: as many for each, up to one.
  ShardTree(int shards, int ranks, int rank, std::span<const std::int64_t> counts = {});

  // The shards of this rank, and the order of their additions.
  Range run() const { return run_; }
  const Accumulation& accumulation() const { return accumulation_; }

  // The number of scratch elements that all_reduce_sum() needs for up to `elements` elements.
  std::size_t scratch_elements(std::size_t elements) const;

  // Finishes the tree. `partials` are this rank's partial sums, from left to right, `elements` each (the same number on
  // all ranks). Afterwards partials[0] holds the sum over all shards; the contents of the others are unspecified.
  // Allocates nothing after the first call.
  void all_reduce_sum(Communicator& communicator, std::span<float* const> partials, std::size_t elements,
                      std::span<float> scratch);

  // Whether each rank has one partial sum.
  bool one_of_each() const { return slices_.size() == static_cast<std::size_t>(rank_count_); }
  // The same where these lie in memory that all ranks share, that of rank r at `at[r]`: this rank finishes its slice and writes
  // it to all of them. All ranks wait for each other before and after.
  void add_in_memory(std::span<float* const> at, std::size_t elements) const;

 private:
  struct Merge {
    std::size_t into;
    std::size_t from;
  };

  std::size_t plan_merges(Range node, std::span<const Range> leaves, std::size_t& next);
  void exchange_slices(Communicator& communicator, std::span<float* const> partials, std::size_t elements,
                       std::span<float> scratch);

  int rank_count_;
  int rank_;
  Range run_;
  Accumulation accumulation_;
  std::vector<std::size_t> first_partial_;  // rank -> its first place among the partial sums of all ranks; one more
  std::vector<Merge> merges_;               // of partial sums of all ranks, in order
  // This rank's slice of all partial sums, and the messages; kept between calls so that a step allocates nothing.
  std::vector<float*> slices_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
};

// The tree over `shards` logical shards from the view of this rank. Throws Error(usage) for fewer shards than ranks.
ShardTree make_shard_tree(const Communicator& ranks, int shards, std::span<const std::int64_t> counts = {});

}  // namespace ddp
