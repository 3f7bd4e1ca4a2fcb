#include "data/pipeline/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "unit/data/files.h"

namespace ddp {
namespace {

std::vector<std::uint32_t> order_of(std::int64_t samples, std::uint64_t seed, std::int64_t epoch) {
  Sampler sampler(samples, seed);
  sampler.begin_epoch(epoch);
  return {sampler.order().begin(), sampler.order().end()};
}

TEST(Sampler, EveryEpochIsAPermutation) {
  for (const std::int64_t samples : {1, 2, 17, 1000}) {
    for (const std::int64_t epoch : {0, 1, 50}) {
      std::vector<std::uint32_t> order = order_of(samples, 9, epoch);
      std::sort(order.begin(), order.end());
      ASSERT_EQ(order.size(), static_cast<std::size_t>(samples));
      for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
    }
  }
}

TEST(Sampler, TheOrderIsAFunctionOfSeedAndEpochAlone) {
  Sampler sampler(500, 3);
  for (const std::int64_t epoch : {4, 0, 4, 2, 100, 0}) {
    sampler.begin_epoch(epoch);
    const std::vector<std::uint32_t> order(sampler.order().begin(), sampler.order().end());
    EXPECT_EQ(order, order_of(500, 3, epoch));
    EXPECT_NE(order, order_of(500, 3, epoch + 1));
    EXPECT_NE(order, order_of(500, 4, epoch));
  }
}

// Over many epochs, every sample comes first equally often.
TEST(Sampler, IsUniform) {
  constexpr int kEpochs = 4000;
  std::vector<int> first(8);
  Sampler sampler(8, 21);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    sampler.begin_epoch(epoch);
    ++first[sampler.order()[0]];
  }
  const double expected = kEpochs / 8.0;
  for (const int count : first) EXPECT_NEAR(count, expected, 5 * std::sqrt(expected));  // five standard deviations
}

TEST(Sampler, RefusesCountsItCannotNumber) {
  error_of(ExitCode::data, [] { Sampler sampler(0, 1); });
  error_of(ExitCode::data, [] { Sampler sampler(std::int64_t{1} << 32, 1); });
}

}  // namespace
}  // namespace ddp
