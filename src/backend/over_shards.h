// Communication within an operator or an update: between the shards that are processed at the same time, one on each rank.
//
//   const SumOverShards sums = [](std::span<double> /*values*/) {};   // there is one shard
//   double squares = 4;
//   sums({&squares, 1});   // all shards call it, at the same places and in the same order
//
// Whoever calls these does not know over which ranks, or how.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace ddp {

// Replaces the values by their sums over all these shards.
using SumOverShards = std::function<void(std::span<double> values)>;

// The sum of squares over the parts of the model that ranks update, in the order of the parts: calls `add` with the sum over
// the parts before, which returns it with that of this part, and returns the sum over all.
using SumOverParts = std::function<double(const std::function<double(double)>& add)>;

// Moves activations, for linear layers whose outputs are divided among the ranks (LinearSpec::parts).
struct ShardExchange {
  std::size_t part = 0;                    // which part of such a layer is here
  std::vector<std::int64_t> samples = {};  // active ones of each part's shard
  // Sends out[p] to part p, and receives in[p] from it, for all p; out[part] is copied to in[part].
  std::function<void(std::span<const std::span<const float>> out, std::span<const std::span<float>> in)> move = {};
};

}  // namespace ddp
