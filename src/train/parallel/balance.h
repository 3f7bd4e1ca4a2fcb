// Moves logical shards from slow ranks to fast ones, by the speed at which they have processed their shards.
//
//   Balance balance(/*shards=*/16, ranks.size());
//   balance.note_step(0.05);         // after every step: the seconds of this rank's own work
//   if (balance.due()) {             // at the same steps on all ranks
//     if (const auto counts = balance.decide(ranks)) ...   // collective: {10, 6}, the shards of each rank
//   }
//   balance.summary();               // what it gained
//
// A rank's shards stay consecutive, and their gradients are added in the same tree whoever computes them, so that the
// sums of a deterministic run keep their bits (comm/sums/shard_tree.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace ddp {

class Balance {
 public:
  Balance(std::int64_t shards, int ranks);

  // The seconds that this rank itself has worked in the step.
  void note_step(double own_seconds);
  bool due() const { return steps_ == kWindow; }
  // Collective, when due. The counts to change to, if they shorten a step by a twentieth; the same on all ranks.
  std::optional<std::vector<std::int64_t>> decide(Communicator& ranks);

  std::span<const std::int64_t> counts() const { return counts_; }
  // "logical shards of the ranks: 10, 6 in place of 8, 8; the slowest works 62 ms in a step in place of 90 ms, 1.45 times as
  // fast", by the speeds of the last window.
  std::string summary() const;

 private:
  static constexpr int kWarmUp = 4;  // steps that are not measured, after the start and after each change
  static constexpr int kWindow = 16;

  std::vector<std::int64_t> first_;
  std::vector<std::int64_t> counts_;
  int skipped_ = 0;
  int steps_ = 0;
  double own_seconds_ = 0;
  // Seconds of the slowest rank in a step, by the speeds of the last window.
  double seconds_before_ = 0;  // with the first division
  double seconds_after_ = 0;   // with the present one
};

}  // namespace ddp
