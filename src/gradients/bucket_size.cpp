#include "gradients/bucket_size.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "comm/sums/reduce.h"
#include "gradients/buckets.h"

namespace ddp {
namespace {

constexpr std::size_t kProbeElements = std::size_t{1} << 18U;  // 1 MiB
constexpr int kShortSums = 10;
constexpr int kLongSums = 3;
// A sum beside backward also waits for its thread to be woken up and to get a core, several times as long as a message takes.
constexpr double kThreadWaits = 4;
// Smaller buckets are sent within this time, and are not worth waking up a thread.
constexpr double kShortest = 0.25e-3;  // seconds
constexpr double kLeastBytes = 16384;

double fastest_sum(Communicator& ranks, std::size_t elements, int times) {
  std::vector<float> data(elements);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < times; ++i) {
    const double begin = now();
    all_reduce_sum(ranks, data, Reduction::ring);
    best = std::min(best, now() - begin);
  }
  return best;
}

}  // namespace

LinkSpeed measure_link(Communicator& ranks) {
  DDP_ASSERT(ranks.size() > 1);
  const double latency = fastest_sum(ranks, static_cast<std::size_t>(ranks.size()), kShortSums);
  const double seconds = fastest_sum(ranks, kProbeElements, kLongSums);
  std::array<double, 2> slowest = {latency, seconds};
  ranks.all_reduce(slowest, ReduceOp::max);
  constexpr double kLeast = 1e-9;  // a clock may not advance during a sum
  return {slowest[0], kProbeElements * sizeof(float) / std::max(kLeast, slowest[1] - slowest[0])};
}

std::size_t best_bucket_bytes(const LinkSpeed& link, std::size_t gradient_bytes) {
  const double bytes = std::sqrt(static_cast<double>(gradient_bytes) * kThreadWaits * link.latency * link.bandwidth);
  // Powers of two, so that two runs on the same machines seldom differ in their buckets, and with them in rounding.
  const double power = std::exp2(std::round(std::log2(std::max(1.0, bytes))));
  const double least = std::clamp(kShortest * link.bandwidth, kLeastBytes, static_cast<double>(kFirstBucketBytes));
  return static_cast<std::size_t>(
      std::clamp(power, std::exp2(std::round(std::log2(least))), static_cast<double>(kBucketBytes)));
}

}  // namespace ddp
