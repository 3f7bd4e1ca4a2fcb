// How many of equal pieces of work workers of different speeds take, so that the slowest is done as early as possible.
//
//   const std::vector<double> speeds = {3, 1};   // pieces per second
//   balanced_counts(8, speeds);                  // {6, 2}
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ddp {

// The share of the slowest worker's time by which a new division must be shorter to be worth moving pieces.
inline constexpr double kLeastBalancingGain = 0.05;

// At least one for each; there are at least as many pieces as workers.
std::vector<std::int64_t> balanced_counts(std::int64_t pieces, std::span<const double> speeds);

}  // namespace ddp
