// Steps ahead of the host, on a device that executes late.
#include "steps_ahead.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <random>
#include <vector>

#include "comm/transport/self.h"

namespace ddp {
namespace {

TEST(StepsAhead, GiveTheSameBits) {
  const std::uint32_t seed = std::random_device{}();
  for (const int ranks : {1, 2, 3}) {
    for (const Reduction algorithm : {Reduction::ring, Reduction::tree}) {
      RigConfig config{.global_batch = 48,
                       .shards = 4,
                       .algorithm = algorithm,
                       .optimizer = {.momentum = 0.9, .nesterov = true, .weight_decay = 5e-4, .clip_norm = 1}};
      const testing::Outcome direct = testing::train_ahead(ranks, config, seed);
      for (const std::size_t ahead : {std::size_t{1}, std::size_t{2}, std::size_t{4}, kMostStepsAhead}) {
        for (const bool queued : {false, true}) {
          config.ahead = ahead;
          config.queued = queued;
          EXPECT_EQ(testing::train_ahead(ranks, config, seed), direct)
              << ranks << " ranks, " << ahead << " steps, " << queued << ", seed " << seed;
        }
      }
    }
  }
}

// Also if the device has the batches, learning rates and messages of an epoch, the last of whose steps is smaller.
TEST(StepsAhead, GiveTheSameBitsIfTheyAreLoadedBefore) {
  const std::uint32_t seed = std::random_device{}();
  for (const int ranks : {1, 2, 3}) {
    RigConfig config{.global_batch = 24,
                     .shards = 4,
                     .algorithm = Reduction::tree,
                     .optimizer = {.momentum = 0.9, .weight_decay = 5e-4, .clip_norm = 1},
                     .images = RigImages::resident};
    const testing::Outcome direct = testing::train_ahead(ranks, config, seed);
    config.loaded_steps = 4;
    for (const std::size_t ahead : {std::size_t{1}, std::size_t{3}, kMostStepsAhead}) {
      for (const bool queued : {false, true}) {
        for (std::size_t together = 1; together <= std::min<std::size_t>(3, ahead); ++together) {
          config.ahead = ahead;
          config.queued = queued;
          config.together = together;
          EXPECT_EQ(testing::train_ahead(ranks, config, seed), direct)
              << ranks << " ranks, " << ahead << " steps, " << together << " at once, " << queued << ", seed " << seed;
        }
      }
    }
  }
}

// Also if a loader's threads write the images to where the device copies them from, which may be late; and if the device
// edits them, as the threads do otherwise.
TEST(StepsAhead, GiveTheSameBitsIfALoaderReadsTheirImages) {
  const std::uint32_t seed = std::random_device{}();
  for (const int ranks : {1, 2}) {
    RigConfig config{.global_batch = 24, .shards = 4, .algorithm = Reduction::tree, .optimizer = {.momentum = 0.9}};
    const testing::Outcome given = testing::train_ahead(ranks, config, seed);
    config.images = RigImages::augmented;
    testing::Outcome augmented = testing::train_ahead(ranks, config, seed);
    EXPECT_NE(augmented.pixels, given.pixels);
    EXPECT_NE(augmented.losses, given.losses);
    augmented.pixels.assign(given.pixels.size(), 0);
    for (const std::size_t ahead : {std::size_t{1}, std::size_t{3}, kMostStepsAhead}) {
      for (const bool queued : {false, true}) {
        config.ahead = ahead;
        config.queued = queued;
        config.images = RigImages::read;
        EXPECT_EQ(testing::train_ahead(ranks, config, seed), given)
            << ranks << " ranks, " << ahead << " steps, " << queued << ", seed " << seed;
        config.images = RigImages::edited;
        EXPECT_EQ(testing::train_ahead(ranks, config, seed), augmented)
            << ranks << " ranks, " << ahead << " steps, " << queued << ", seed " << seed;
      }
    }
  }
}

// Every slot has a recording of its own, since it has buffers of its own.
TEST(StepsAhead, AreRecordedOncePerSlot) {
  omp_set_num_threads(1);
  const auto self = make_self_communicator();
  TrainingRig rig(*self, {.global_batch = 24, .ahead = 3, .queued = true});
  for (int s = 1; s <= 12; ++s) {
    if (rig.step.in_flight() == 3) (void)rig.step.finish();
    rig.begin(s, 0, 24, 0.1);
  }
  const auto& queue = dynamic_cast<const LazyQueue&>(rig.backend->queue());
  EXPECT_EQ(queue.recordings, 3);
  EXPECT_EQ(queue.replays, 11);
  while (rig.step.in_flight() > 0) EXPECT_TRUE(rig.step.finish().finite);
}

// Several steps that begin at once are one recording.
TEST(StepsAhead, AreRecordedTogether) {
  omp_set_num_threads(1);
  const auto self = make_self_communicator();
  constexpr std::int64_t kBatch = 24;
  TrainingRig rig(*self, {.global_batch = kBatch,
                          .ahead = 6,
                          .queued = true,
                          .images = RigImages::resident,
                          .loaded_steps = 18,
                          .together = 3});
  std::vector<RigStep> steps;
  for (std::int64_t s = 1; s <= 18; ++s) steps.push_back({s, s * kBatch, kBatch, 0.1});
  rig.load(steps);
  for (int launch = 0; launch < 6; ++launch) {
    while (rig.step.in_flight() > 3) (void)rig.step.finish();
    rig.step.begin_loaded(rig.parameters.data(), {}, 3);
  }
  const auto& queue = dynamic_cast<const LazyQueue&>(rig.backend->queue());
  EXPECT_EQ(queue.recordings, 2);
  EXPECT_EQ(queue.replays, 5);
  while (rig.step.in_flight() > 0) EXPECT_TRUE(rig.step.finish().finite);
}

// Marks in a recording make kernels wait. The others' time is divided as that of the last step with marks.
TEST(StepsAhead, HaveMarksInOneSlot) {
  omp_set_num_threads(1);
  const auto self = make_self_communicator();
  TrainingRig rig(*self, {.global_batch = 24, .ahead = 3, .queued = true});
  const auto begins_and_ends = [&](std::int64_t step) {
    rig.begin(step, 0, 24, 0.1);
    EXPECT_TRUE(rig.step.finish().finite);
  };
  for (std::int64_t s = 1; s <= 3; ++s) begins_and_ends(s);
  const auto& queue = dynamic_cast<const LazyQueue&>(rig.backend->queue());
  EXPECT_EQ(queue.recorded_marks, 0);  // of the second and third slot
  PhaseTotals before = rig.clock.totals();
  for (std::int64_t s = 4; s <= 6; ++s) {
    begins_and_ends(s);
    EXPECT_EQ(queue.recorded_marks, 5) << s;  // begin, backward, reduction, optimizer, end
    const PhaseTotals after = rig.clock.totals();
    for (const Phase phase : {Phase::forward, Phase::backward, Phase::optimizer}) {
      EXPECT_GT(after[phase], before[phase]) << s << ", phase " << static_cast<int>(phase);
    }
    before = after;
  }
}

TEST(StepsAhead, KnowWhichOfThoseThatBeginAtOnceIsNotFinite) {
  for (const int ranks : {1, 2, 3}) {
    for (const bool queued : {false, true}) {
      testing::halts_within_several(ranks, {.global_batch = 24, .queued = queued, .images = RigImages::resident});
    }
  }
}

TEST(StepsAhead, ChangeNothingBehindOneThatIsNotFinite) {
  for (const int ranks : {1, 2, 3}) {
    testing::halts_and_resumes(ranks, {.global_batch = 24, .optimizer = {.momentum = 0.9}, .ahead = 5, .queued = true});
  }
}

TEST(StepsAhead, ChangeNothingBehindOneThatIsNotFiniteAndWasLoadedBefore) {
  for (const int ranks : {1, 2, 3}) {
    testing::halts_and_resumes(ranks, {.global_batch = 24,
                                       .optimizer = {.momentum = 0.9},
                                       .ahead = 5,
                                       .queued = true,
                                       .images = RigImages::resident,
                                       .loaded_steps = 5});
  }
}

TEST(StepsAhead, ChangeNothingBehindOneThatIsNotFiniteOnTheCpuEither) {
  testing::halts_and_resumes(2, {.global_batch = 24, .optimizer = {.momentum = 0.9}, .ahead = 5});
}

}  // namespace
}  // namespace ddp
