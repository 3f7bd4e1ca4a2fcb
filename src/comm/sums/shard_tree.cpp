#include "comm/sums/shard_tree.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "comm/sums/reduce.h"

namespace ddp {
namespace {

void collect_partial_sums(Range node, Range run, std::vector<Range>& result) {
  if (node.end <= run.begin || run.end <= node.begin) return;
  if (run.begin <= node.begin && node.end <= run.end) {
    result.push_back(node);
    return;
  }
  const std::int64_t middle = tree_split(node);
  collect_partial_sums({node.begin, middle}, run, result);
  collect_partial_sums({middle, node.end}, run, result);
}

// The nodes with at least two shards, at or below `node`, whose last shard is `shard`: they can be added when it
// completes.
int nodes_ending_with(Range node, std::int64_t shard) {
  int count = 0;
  while (node.size() > 1) {
    if (shard + 1 == node.end) ++count;
    const std::int64_t middle = tree_split(node);
    node = shard < middle ? Range{node.begin, middle} : Range{middle, node.end};
  }
  return count;
}

}  // namespace

std::int64_t tree_split(Range node) {
  DDP_ASSERT(node.size() > 1);
  return node.begin + static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(node.size() - 1)));
}

std::vector<Range> partial_sums(std::int64_t shards, Range run) {
  DDP_ASSERT(0 <= run.begin && run.begin <= run.end && run.end <= shards);
  std::vector<Range> result;
  if (run.size() > 0) collect_partial_sums({0, shards}, run, result);
  return result;
}

Accumulation plan_accumulation(std::int64_t shards, Range run) {
  Accumulation plan;
  std::size_t in_use = 0;
  for (const Range node : partial_sums(shards, run)) {
    for (std::int64_t shard = node.begin; shard < node.end; ++shard) {
      const int merges = nodes_ending_with(node, shard);
      plan.merges.push_back(merges);
      ++in_use;
      plan.buffers = std::max(plan.buffers, in_use);
      in_use -= static_cast<std::size_t>(merges);
    }
  }
  plan.remaining = in_use;
  return plan;
}

ShardTree::ShardTree(int shards, int ranks, int rank, std::span<const std::int64_t> counts)
    : rank_count_(ranks),
      rank_(rank),
      run_(part(shards, ranks, rank, counts)),
      accumulation_(plan_accumulation(shards, run_)) {
  DDP_ASSERT(ranks >= 1 && ranks <= shards && rank >= 0 && rank < ranks);
  std::vector<Range> leaves;
  for (int r = 0; r < ranks; ++r) {
    first_partial_.push_back(leaves.size());
    const std::vector<Range> partials = partial_sums(shards, part(shards, ranks, r, counts));
    leaves.insert(leaves.end(), partials.begin(), partials.end());
  }
  first_partial_.push_back(leaves.size());
  std::size_t next = 0;
  plan_merges({0, shards}, leaves, next);
  slices_.resize(leaves.size());
}

// Lists the additions below `node`, whose leaves begin at `next`, and returns the index of its sum.
std::size_t ShardTree::plan_merges(Range node, std::span<const Range> leaves, std::size_t& next) {
  if (leaves[next] == node) return next++;
  const std::int64_t middle = tree_split(node);
  const std::size_t left = plan_merges({node.begin, middle}, leaves, next);
  const std::size_t right = plan_merges({middle, node.end}, leaves, next);
  merges_.push_back({left, right});
  return left;
}

std::size_t ShardTree::scratch_elements(std::size_t elements) const {
  const auto rank = static_cast<std::size_t>(rank_);
  const std::size_t own = first_partial_[rank + 1] - first_partial_[rank];
  const Range largest_slice = part(static_cast<std::int64_t>(elements), rank_count_, 0);
  return static_cast<std::size_t>(largest_slice.size()) * (slices_.size() - own);
}

void ShardTree::exchange_slices(Communicator& communicator, std::span<float* const> partials, std::size_t elements,
                                std::span<float> scratch) {
  const Range mine = part(static_cast<std::int64_t>(elements), rank_count_, rank_);
  const auto my_elements = static_cast<std::size_t>(mine.size());
  outgoing_.clear();
  incoming_.clear();
  for (int peer = 0; peer < rank_count_; ++peer) {
    const std::size_t first = first_partial_[static_cast<std::size_t>(peer)];
    const std::size_t count = first_partial_[static_cast<std::size_t>(peer) + 1] - first;
    for (std::size_t k = 0; k < count; ++k) {
      if (peer == rank_) {
        slices_[first + k] = partials[k] + mine.begin;
      } else {
        slices_[first + k] = scratch.data();
        if (my_elements > 0) incoming_.push_back({std::as_writable_bytes(scratch.first(my_elements)), peer});
        scratch = scratch.subspan(my_elements);
      }
    }
    const Range theirs = part(static_cast<std::int64_t>(elements), rank_count_, peer);
    if (peer == rank_ || theirs.size() == 0) continue;
    for (const float* partial : partials) {
      const std::span slice(partial + theirs.begin, static_cast<std::size_t>(theirs.size()));
      outgoing_.push_back({std::as_bytes(slice), peer});
    }
  }
  communicator.exchange(outgoing_, incoming_, "all_reduce_sum (tree)");
}

void ShardTree::all_reduce_sum(Communicator& communicator, std::span<float* const> partials, std::size_t elements,
                               std::span<float> scratch) {
  DDP_ASSERT(communicator.size() == rank_count_ && communicator.rank() == rank_);
  DDP_ASSERT(partials.size() == accumulation_.remaining && scratch.size() >= scratch_elements(elements));
  if (rank_count_ == 1 || elements == 0) return;
  exchange_slices(communicator, partials, elements, scratch);

  const Range mine = part(static_cast<std::int64_t>(elements), rank_count_, rank_);
  const std::span<float> sum(partials[0], elements);
  const std::span<float> my_slice =
      sum.subspan(static_cast<std::size_t>(mine.begin), static_cast<std::size_t>(mine.size()));
  for (const Merge& merge : merges_) add_to(slices_[merge.into], slices_[merge.from], my_slice.size());
  if (slices_[0] != my_slice.data()) std::copy_n(slices_[0], my_slice.size(), my_slice.data());

  outgoing_.clear();
  incoming_.clear();
  for (int peer = 0; peer < rank_count_; ++peer) {
    if (peer == rank_) continue;
    const Range theirs = part(static_cast<std::int64_t>(elements), rank_count_, peer);
    if (mine.size() > 0) outgoing_.push_back({std::as_bytes(my_slice), peer});
    if (theirs.size() == 0) continue;
    const std::span<float> slice =
        sum.subspan(static_cast<std::size_t>(theirs.begin), static_cast<std::size_t>(theirs.size()));
    incoming_.push_back({std::as_writable_bytes(slice), peer});
  }
  communicator.exchange(outgoing_, incoming_, "all_reduce_sum (tree)");
}

void ShardTree::add_in_memory(std::span<float* const> at, std::size_t elements) const {
  DDP_ASSERT(one_of_each() && at.size() == slices_.size());
  const Range mine = part(static_cast<std::int64_t>(elements), rank_count_, rank_);
  for (std::int64_t begin = mine.begin; begin < mine.end; begin += kSumBlock) {
    const auto count = static_cast<std::size_t>(std::min(kSumBlock, mine.end - begin));
    for (const Merge& merge : merges_) add_to(at[merge.into] + begin, at[merge.from] + begin, count);
    for (float* const rank : at.subspan(1)) std::copy_n(at[0] + begin, count, rank + begin);
  }
}

ShardTree make_shard_tree(const Communicator& ranks, int shards, std::span<const std::int64_t> counts) {
  check(shards >= ranks.size(), ExitCode::usage,
        "{} logical shards leave some of {} ranks without work; give --logical-shards at least {}", shards,
        ranks.size(), ranks.size());
  return {shards, ranks.size(), ranks.rank(), counts};
}

}  // namespace ddp
