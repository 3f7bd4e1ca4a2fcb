#include "gradients/bucket_size.h"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/transport/threads.h"
#include "gradients/buckets.h"

namespace ddp {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20U;

// What a step waits beyond backward: the last bucket, and the latencies of all of them.
double exposed(const LinkSpeed& link, double gradient, double bucket) {
  return bucket / link.bandwidth + gradient / bucket * 4 * link.latency;
}

TEST(BucketSizeTest, NoOtherPowerOfTwoIsBetter) {
  constexpr std::size_t kGradient = 45 * kMiB;
  // 1 Gbit/s, 10 Gbit/s, memory of one host.
  for (const LinkSpeed link : {LinkSpeed{150e-6, 118e6}, LinkSpeed{60e-6, 1.1e9}, LinkSpeed{20e-6, 3e9}}) {
    const std::size_t best = best_bucket_bytes(link, kGradient);
    EXPECT_GE(best, kMiB);
    EXPECT_LE(best, kBucketBytes);
    EXPECT_EQ(best & (best - 1), 0U);
    const auto bytes = static_cast<double>(best);
    const auto gradient = static_cast<double>(kGradient);
    EXPECT_LE(exposed(link, gradient, bytes), exposed(link, gradient, bytes / 4));
    EXPECT_LE(exposed(link, gradient, bytes), exposed(link, gradient, bytes * 4));
  }
}

TEST(BucketSizeTest, StaysWithinItsLimits) {
  EXPECT_EQ(best_bucket_bytes({1e-6, 1e9}, 1000), kMiB / 4);
  EXPECT_EQ(best_bucket_bytes({1e-6, 1e10}, 1000), kMiB);
  EXPECT_EQ(best_bucket_bytes({1e-6, 1e6}, 1000), kMiB / 64);
  EXPECT_EQ(best_bucket_bytes({1, 1e12}, 1000 * kMiB), kBucketBytes);
  EXPECT_EQ(best_bucket_bytes({0, 0}, 0), kMiB / 64);
}

// LeNet's gradient at 1 Gbit/s: its largest parameter, of 192 KB, is sent while those of the convolutions are computed.
TEST(BucketSizeTest, DividesASmallGradientOnASlowLink) {
  const std::size_t sizes[] = {150, 6, 2400, 16, 48000, 120, 10080, 84, 840, 10};
  const std::size_t best = best_bucket_bytes({150e-6, 118e6}, 61706 * sizeof(float));
  EXPECT_EQ(best, kMiB / 8);
  const std::vector<Bucket> buckets = plan_buckets(sizes, best, best);
  EXPECT_EQ(buckets, (std::vector<Bucket>{{50572, 61706, 5, 10}, {2572, 50572, 4, 5}, {0, 2572, 0, 4}}));
}

TEST(BucketSizeTest, AllRanksMeasureTheSame) {
  run_as_threads(3, [](Communicator& ranks) {
    const LinkSpeed link = measure_link(ranks);
    EXPECT_GT(link.latency, 0);
    EXPECT_GT(link.bandwidth, 0);
    std::vector<double> most = {link.latency, link.bandwidth};
    std::vector<double> least = most;
    ranks.all_reduce(most, ReduceOp::max);
    ranks.all_reduce(least, ReduceOp::min);
    EXPECT_EQ(most, least);
  });
}

}  // namespace
}  // namespace ddp
