#include "gradients/buckets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/random.h"

namespace ddp {
namespace {

using Buckets = std::vector<Bucket>;

TEST(Buckets, BeginAtTheTail) {
  const std::vector<std::size_t> sizes = {10, 20, 30, 40};
  EXPECT_EQ(plan_buckets(sizes, 40 * 4, 50 * 4), (Buckets{{60, 100, 3, 4}, {10, 60, 1, 3}, {0, 10, 0, 1}}));
}

TEST(Buckets, ALargeParameterIsAlone) {
  const std::vector<std::size_t> sizes = {3, 1000, 3};
  EXPECT_EQ(plan_buckets(sizes, 40, 40), (Buckets{{1003, 1006, 2, 3}, {3, 1003, 1, 2}, {0, 3, 0, 1}}));
}

TEST(Buckets, AFewElementsJoinALargeParameter) {
  const std::vector<std::size_t> sizes = {4, 300, 2, 1000, 11};
  EXPECT_EQ(plan_buckets(sizes, 400, 400), (Buckets{{306, 1317, 3, 5}, {4, 306, 1, 3}, {0, 4, 0, 1}}));
}

TEST(Buckets, LeaveOutWhatIsKept) {
  const std::vector<std::size_t> sizes = {10, 20, 30, 40, 5};
  const std::vector<bool> kept = {false, false, true, false, true};
  EXPECT_EQ(plan_buckets(sizes, 4096, 4096, kept), (Buckets{{60, 100, 3, 4}, {0, 30, 0, 2}}));
  EXPECT_EQ(plan_buckets(sizes, 4096, 4096, std::vector<bool>(5, true)), Buckets{});
}

TEST(Buckets, OfNothingAreNone) { EXPECT_EQ(plan_buckets({}), Buckets{}); }

TEST(Buckets, TheDefaultsAreOneAndTwentyFiveMiB) {
  const std::vector<std::size_t> sizes(60, std::size_t{1} << 18U);  // 1 MiB each
  const Buckets buckets = plan_buckets(sizes);
  ASSERT_EQ(buckets.size(), 4U);
  EXPECT_EQ(buckets[0].last_parameter - buckets[0].first_parameter, 1U);
  EXPECT_EQ(buckets[1].last_parameter - buckets[1].first_parameter, 25U);
  EXPECT_EQ(buckets[2].last_parameter - buckets[2].first_parameter, 25U);
  EXPECT_EQ(buckets[3].last_parameter - buckets[3].first_parameter, 9U);
}

TEST(Buckets, HoldTheirPropertiesForRandomSizes) {
  Random random(2, 0);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::size_t> sizes(1 + random.below(40));
    for (std::size_t& size : sizes) size = random.below(8) == 0 ? random.below(3000) : random.below(200);
    const std::size_t first_bytes = 4 * (1 + random.below(400));
    const std::size_t other_bytes = 4 * (1 + random.below(1000));
    const Buckets buckets = plan_buckets(sizes, first_bytes, other_bytes);

    std::size_t end = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    std::size_t last_parameter = sizes.size();
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      const Bucket& bucket = buckets[i];
      // Buckets are contiguous from the end and contain whole parameters.
      EXPECT_EQ(bucket.end, end);
      EXPECT_EQ(bucket.last_parameter, last_parameter);
      ASSERT_LT(bucket.first_parameter, bucket.last_parameter);
      const auto first = sizes.begin() + static_cast<std::ptrdiff_t>(bucket.first_parameter);
      const auto last = sizes.begin() + static_cast<std::ptrdiff_t>(bucket.last_parameter);
      EXPECT_EQ(bucket.elements(), std::accumulate(first, last, std::size_t{0}));
      // A bucket is within its limit, a single parameter, or one with a few elements; and the next parameter would not have
      // fitted.
      const std::size_t limit = (i == 0 ? first_bytes : other_bytes) / sizeof(float);
      EXPECT_TRUE(bucket.elements() <= limit || bucket.last_parameter - bucket.first_parameter == 1 ||
                  bucket.elements() - *first < limit / 8);
      if (bucket.first_parameter > 0) {
        EXPECT_GE(bucket.elements(), limit / 8);
        EXPECT_GT(bucket.elements() + sizes[bucket.first_parameter - 1], limit);
      }
      end = bucket.begin;
      last_parameter = bucket.first_parameter;
    }
    EXPECT_EQ(end, 0U);
    EXPECT_EQ(last_parameter, 0U);
  }
}

}  // namespace
}  // namespace ddp
