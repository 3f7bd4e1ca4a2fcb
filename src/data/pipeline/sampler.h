// The order of samples in an epoch: a function of (seed, epoch) alone, independent of the number of ranks, of loader
// threads and of earlier epochs.
//
//   Sampler sampler(train.size(), seed);
//   sampler.begin_epoch(3);
//   std::span<const std::uint32_t> first_batch = sampler.order().first(256);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ddp {

class Sampler {
 public:
  // Permutes 0 .. samples-1; 1 <= samples < 2^32. Before begin_epoch() the order is ascending.
  Sampler(std::int64_t samples, std::uint64_t seed);

  void begin_epoch(std::int64_t epoch);
  // Valid until the next begin_epoch().
  std::span<const std::uint32_t> order() const { return order_; }

 private:
  std::vector<std::uint32_t> order_;
  std::uint64_t seed_;
};

}  // namespace ddp
