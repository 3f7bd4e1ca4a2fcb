#include "base/balanced_counts.h"

#include "base/error.h"

namespace ddp {

// Each piece goes to the worker that would be done with it first.
std::vector<std::int64_t> balanced_counts(std::int64_t pieces, std::span<const double> speeds) {
  std::vector<std::int64_t> counts(speeds.size(), 1);
  DDP_ASSERT(!speeds.empty() && pieces >= static_cast<std::int64_t>(speeds.size()));
  for (auto left = pieces - static_cast<std::int64_t>(speeds.size()); left > 0; --left) {
    std::size_t best = 0;
    for (std::size_t worker = 1; worker < speeds.size(); ++worker) {
      const auto seconds = [&](std::size_t w) { return static_cast<double>(counts[w] + 1) / speeds[w]; };
      if (seconds(worker) < seconds(best)) best = worker;
    }
    ++counts[best];
  }
  return counts;
}

}  // namespace ddp
