// Sums of squares in double precision, always in the same order.
//
//   const double squares = sum_of_squares(count, [values](std::int64_t i) { return values[i]; });
#pragma once

#include <array>
#include <cstdint>

namespace ddp {

// In eight interleaved sums: an order of additions that can be vectorised.
template <class Square>
double sum_of_squares(std::int64_t count, const Square& value) {
  constexpr std::int64_t kSums = 8;
  std::array<double, kSums> sums{};
  std::int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (std::int64_t lane = 0; lane < kSums; ++lane) {
      const auto x = static_cast<double>(value(i + lane));
      sums[static_cast<std::size_t>(lane)] += x * x;
    }
  }
  for (; i < count; ++i) {
    const auto x = static_cast<double>(value(i));
    sums[static_cast<std::size_t>(i % kSums)] += x * x;
  }
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

}  // namespace ddp
