#include "train/parallel/shared_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "comm/transport/threads.h"
#include "unit/train/training_rig.h"

namespace ddp {
namespace {

constexpr std::int64_t kSteps = 4;

struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<float> weights;
  std::vector<float> average;  // empty: none

  friend bool operator==(const Trained&, const Trained&) = default;
};

// What rank `reporter` has after some steps.
Trained train(RigConfig config, int ranks, int reporter) {
  Trained result;
  run_as_threads(ranks, [&](Communicator& communicator) {
    omp_set_num_threads(1);
    TrainingRig rig(communicator, config);
    Trained own;
    for (std::int64_t s = 0; s < kSteps; ++s) {
      const StepResult step = rig.run(s + 1, 60 * s, 60, 0.05);
      EXPECT_TRUE(step.finite);
      own.losses.push_back(step.loss);
      own.norms.push_back(step.grad_norm);
    }
    own.weights.assign(rig.weights(), rig.weights() + rig.parameters.size());
    const float* average = rig.optimizer.average();
    if (average != nullptr) own.average.assign(average, average + rig.parameters.size());
    communicator.barrier();  // others may be reading the shared memory of this rank
    if (communicator.rank() == reporter) result = std::move(own);
  });
  return result;
}

RigConfig config_of(const UpdateSettings& optimizer, std::vector<int> hosts) {
  RigConfig config;
  config.global_batch = 60;
  config.optimizer = optimizer;
  config.hosts = std::move(hosts);
  return config;
}

// The sums of two ranks have the same bits in any order, and so have all updates.
TEST(SharedState, UpdatesOfPartsHaveTheBitsOfUpdatesOfAll) {
  const std::vector<UpdateSettings> optimizers = {
      {.rule = UpdateRule::sgd},
      {.rule = UpdateRule::sgd, .momentum = 0.9, .nesterov = true, .weight_decay = 1e-3},
      {.rule = UpdateRule::adam, .weight_decay = 0.1, .decoupled = true, .average_decay = 0.9},
      {.rule = UpdateRule::rmsprop, .clip_value = 0.01},
  };
  for (const UpdateSettings& optimizer : optimizers) {
    const Trained apart = train(config_of(optimizer, {}), 2, 0);
    for (const int reporter : {0, 1}) {
      const Trained shared = train(config_of(optimizer, {0, 0}), 2, reporter);
      EXPECT_EQ(shared.losses, apart.losses);
      EXPECT_EQ(shared.weights, apart.weights);
      EXPECT_EQ(shared.average, apart.average);
      // Squares are summed in fp32, 32 of them one after the other: an error of 32 * 2^-24 at most.
      for (std::size_t s = 0; s < kSteps; ++s) EXPECT_NEAR(shared.norms[s], apart.norms[s], 2e-6 * apart.norms[s]);
    }
  }
}

// Sums over more ranks, hosts between them, and the norm of a gradient that is clipped differ by rounding.
TEST(SharedState, AnyPlacementIsTheSameComputation) {
  const UpdateSettings optimizer = {.rule = UpdateRule::sgd, .momentum = 0.9, .clip_norm = 0.1};
  const Trained one = train(config_of(optimizer, {}), 1, 0);
  EXPECT_GT(*std::min_element(one.norms.begin(), one.norms.end()), 0.1) << "nothing would be clipped";
  const std::vector<std::vector<int>> placements = {{0, 0, 0}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 0}};
  for (const std::vector<int>& hosts : placements) {
    const auto ranks = static_cast<int>(hosts.size());
    const Trained first = train(config_of(optimizer, hosts), ranks, 0);
    EXPECT_EQ(train(config_of(optimizer, hosts), ranks, ranks - 1), first) << "repeated, as the last rank has it";
    for (std::size_t s = 0; s < kSteps; ++s) {
      EXPECT_NEAR(first.losses[s], one.losses[s], 1e-5 * one.losses[s]);
      EXPECT_NEAR(first.norms[s], one.norms[s], 1e-4 * one.norms[s]);
    }
    for (std::size_t i = 0; i < one.weights.size(); ++i) ASSERT_NEAR(first.weights[i], one.weights[i], 1e-5) << i;
  }
}

// With the norm of the gradient.
TEST(SharedState, TheFixedTreeHasTheBitsOfOneRank) {
  RigConfig config = config_of({.rule = UpdateRule::sgd, .momentum = 0.9}, {});
  config.algorithm = Reduction::tree;
  config.shards = 4;
  const Trained one = train(config, 1, 0);
  const std::vector<std::vector<int>> placements = {{0, 0}, {0, 0, 0}, {0, 0, 0, 0}, {0, 0, 1, 1}};
  for (const std::vector<int>& hosts : placements) {
    config.hosts = hosts;
    const auto ranks = static_cast<int>(hosts.size());
    EXPECT_EQ(train(config, ranks, ranks - 1), one) << ranks << " ranks";
  }
}

TEST(SharedState, ALossThatIsNoNumberChangesNoPart) {
  run_as_threads(4, [&](Communicator& communicator) {
    omp_set_num_threads(1);
    TrainingRig rig(communicator, config_of({.rule = UpdateRule::adam}, {0, 0, 1, 1}));
    if (rig.share->first()) rig.weights()[5] = std::numeric_limits<float>::quiet_NaN();
    rig.share->meet();
    const std::vector<float> before(rig.weights(), rig.weights() + rig.parameters.size());
    const StepResult result = rig.run(1, 0, 60, 0.1);
    EXPECT_FALSE(result.finite);
    for (std::size_t i = 6; i < before.size(); ++i) ASSERT_EQ(rig.weights()[i], before[i]);
    communicator.barrier();
  });
}

TEST(SharedState, SegmentsKeepTheirFactorsWithinARange) {
  const std::vector<ParameterSegment> segments = {{0, 10, 1, 0}, {12, 8, 2, 1}, {20, 5, 3, 1}};
  const std::vector<Range> ranges = {{3, 14}, {18, 22}, {25, 40}};
  const std::vector<ParameterSegment> within = segments_within(segments, ranges);
  const auto is = [](std::int64_t offset, std::int64_t count, float lr_scale) {
    return ::testing::AllOf(::testing::Field(&ParameterSegment::offset, offset),
                            ::testing::Field(&ParameterSegment::count, count),
                            ::testing::Field(&ParameterSegment::lr_scale, lr_scale));
  };
  EXPECT_THAT(within, ::testing::ElementsAre(is(3, 7, 1), is(12, 2, 2), is(18, 2, 2), is(20, 2, 3)));
}

}  // namespace
}  // namespace ddp
