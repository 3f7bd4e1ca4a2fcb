#include "explain/overlap.h"

#include <algorithm>

namespace ddp {

double exposed_sums(std::span<const QueuedSum> sums, double backward_ends, double delay) {
  double seconds = 0;
  for (const QueuedSum& sum : sums) seconds += sum.seconds;
  if (seconds <= 0) return delay;
  double done = 0;
  for (const QueuedSum& sum : sums) {
    done = std::max(done, sum.ready * backward_ends) + (1 + delay / seconds) * sum.seconds;
  }
  return std::max(0.0, done - backward_ends);
}

double delay_of_sums(std::span<const QueuedSum> sums, double backward_ends, double exposed) {
  if (exposed_sums(sums, backward_ends) >= exposed) return 0;
  double low = 0;
  // With this delay the sums alone take until then.
  double high = backward_ends + exposed;
  constexpr int kHalvings = 50;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (exposed_sums(sums, backward_ends, middle) < exposed ? low : high) = middle;
  }
  return high;
}

}  // namespace ddp
