// Moves logical shards from slow ranks to fast ones, by the speed at which they have processed their shards.
//
//   Balance balance(/*shards=*/16, ranks.size());
//   balance.note_step(0.05, 0.09);   // after every step: the seconds of this rank's own work, and of the step
//   if (balance.due()) {             // at the same steps on all ranks
//     if (const auto counts = balance.decide(ranks)) ...   // collective: {10, 6}, the shards of each rank
//   }
//   balance.summary();               // what it gained
//
// A rank's shards stay consecutive, and their gradients are added in the same tree whoever computes them, so that the
// sums of a deterministic run keep their bits (comm/shard_tree.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace ddp {

// The shards of each rank, at least one, for which the slowest takes least; `speeds` are in shards per second.
std::vector<std::int64_t> balanced_counts(std::int64_t shards, std::span<const double> speeds);

class Balance {
 public:
  Balance(std::int64_t shards, int ranks);

  // The seconds that this rank itself has worked in the step, and that the step has taken.
  void note_step(double own_seconds, double wall_seconds);
  bool due() const { return steps_ == kWindow; }
  // Collective, when due. The counts to change to, if they shorten a step by a twentieth; the same on all ranks.
  std::optional<std::vector<std::int64_t>> decide(Communicator& ranks);

  std::span<const std::int64_t> counts() const { return counts_; }
  // "logical shards of the ranks: 10, 6 in place of 8, 8; a step takes 62 ms in place of 90 ms, 1.45 times as fast".
  std::string summary() const;

 private:
  static constexpr int kWarmUp = 4;  // steps that are not measured, after the start and after each change
  static constexpr int kWindow = 16;

  std::vector<std::int64_t> first_;
  std::vector<std::int64_t> counts_;
  int skipped_ = 0;
  int steps_ = 0;
  double own_seconds_ = 0;
  double window_seconds_ = 0;
  double seconds_before_ = 0;  // of a step, with the first division
  double seconds_after_ = 0;   // of a step, in the last window
};

}  // namespace ddp
