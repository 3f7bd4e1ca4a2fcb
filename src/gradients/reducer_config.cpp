#include "gradients/reducer_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "backend/memory.h"
#include "base/error.h"

namespace ddp {
namespace {

// Ranks with different plans would add mismatched elements, or wait forever.
void check_same_on_all_ranks(Communicator& communicator, const ReducerConfig& config) {
  std::vector<std::int64_t> plan = {static_cast<std::int64_t>(config.algorithm), config.bf16 ? 1 : 0, config.shards,
                                    static_cast<std::int64_t>(config.elements),
                                    static_cast<std::int64_t>(config.buckets.size())};
  std::int64_t fingerprint = 0;
  for (const Bucket& bucket : config.buckets) {
    // FNV-1a over the borders: enough to detect plans that differ by mistake.
    fingerprint = static_cast<std::int64_t>((static_cast<std::uint64_t>(fingerprint) ^ bucket.begin) * 1099511628211U);
  }
  plan.push_back(fingerprint);
  std::vector<std::int64_t> first = plan;
  communicator.broadcast(std::as_writable_bytes(std::span(first)), 0);
  std::int64_t differs = plan == first ? communicator.size() : communicator.rank();
  communicator.all_reduce(std::span(&differs, 1), ReduceOp::min);
  check(differs == communicator.size(), ExitCode::internal,
        "internal error: rank {} has other gradient buckets; start all ranks with the same program and options",
        differs);
}

}  // namespace

std::vector<Range> updated_ranges(const ReducerConfig& config) {
  std::vector<Range> ranges;
  for (auto bucket = config.buckets.rbegin(); bucket != config.buckets.rend(); ++bucket) {
    const auto begin = static_cast<std::int64_t>(bucket->begin);
    const auto elements = static_cast<std::int64_t>(bucket->elements());
    const Range own = config.part ? config.part(elements) : Range{0, elements};
    ranges.push_back({begin + own.begin, begin + own.end});
  }
  return ranges;
}

Accumulation plan_own_shards(const Communicator& communicator, const ReducerConfig& config) {
  const ShardTree tree = make_shard_tree(communicator, config.shards, config.shard_counts);
  if (config.algorithm == Reduction::tree) return tree.accumulation();
  return plan_accumulation(tree.run().size(), {0, tree.run().size()});
}

void check_buckets(Communicator& communicator, const ReducerConfig& config) {
  std::size_t end = config.elements;
  std::size_t elements = 0;
  for (const Bucket& bucket : config.buckets) {
    DDP_ASSERT(bucket.end <= end && bucket.begin <= bucket.end);
    end = bucket.begin;
    elements += bucket.elements();
  }
  for (const Range& kept : config.kept) elements += static_cast<std::size_t>(kept.size());
  DDP_ASSERT(elements == config.elements);
  if (communicator.size() > 1) check_same_on_all_ranks(communicator, config);
}

std::string bucket_name(std::int64_t step, std::size_t bucket, const ReducerConfig& config) {
  return fmt::format("step {}, gradient bucket {} of {}", step, bucket + 1, config.buckets.size());
}

std::size_t buffer_stride(std::size_t elements) { return aligned_bytes(elements * sizeof(float)) / sizeof(float); }

}  // namespace ddp
