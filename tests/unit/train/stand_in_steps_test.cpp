// Whole steps on the stand-in GPU: streams are threads, and a recorded graph executes in any order that its edges allow.
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "backend/cuda/cuda_backend.h"
#include "steps_ahead.h"

namespace ddp {
namespace {

std::unique_ptr<Backend> make_gpu() { return make_cuda_backend({}); }

RigConfig on_gpu() {
  return {.global_batch = 6, .shards = 2, .optimizer = {.momentum = 0.9, .weight_decay = 5e-4}, .device = make_gpu};
}

RigConfig muon_on_gpu() {
  RigConfig config = on_gpu();
  config.optimizer = {.rule = UpdateRule::muon, .momentum = 0.9, .weight_decay = 5e-4, .muon_normalizes = true};
  return config;
}

// The same steps on the CPU differ by rounding only.
void follow_the_cpu(RigConfig config) {
  const std::uint32_t seed = std::random_device{}();
  config.ahead = 3;
  config.record = true;
  const testing::Outcome actual = testing::train_ahead(1, config, seed);
  config.ahead = 1;
  config.record = false;
  config.device = nullptr;
  const testing::Outcome expected = testing::train_ahead(1, config, seed);
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  // Sums of up to 800 products in fp32, whose errors grow by a few steps.
  for (std::size_t s = 0; s < expected.losses.size(); ++s) {
    EXPECT_NEAR(actual.losses[s], expected.losses[s], 1e-4 * expected.losses[s]) << s;
    EXPECT_NEAR(actual.norms[s], expected.norms[s], 1e-3 * expected.norms[s]) << s;
  }
}

TEST(StandInSteps, AheadOfTheHostAndRecordedTheyGiveTheSameBits) {
  const std::uint32_t seed = std::random_device{}();
  RigConfig config = on_gpu();
  const testing::Outcome expected = testing::train_ahead(1, config, seed);
  for (const std::size_t ahead : {1, 4}) {
    config.ahead = ahead;
    config.record = true;
    EXPECT_EQ(testing::train_ahead(1, config, seed), expected) << ahead << " steps, seed " << seed;
  }
}

TEST(StandInSteps, LoadedBeforeTheyGiveTheSameBits) {
  const std::uint32_t seed = std::random_device{}();
  RigConfig config = on_gpu();
  config.images = RigImages::resident;
  const testing::Outcome expected = testing::train_ahead(1, config, seed);
  config.loaded_steps = 4;
  for (const std::size_t ahead : {1, 4}) {
    config.ahead = ahead;
    config.together = ahead == 1 ? 1 : 2;
    config.record = true;
    EXPECT_EQ(testing::train_ahead(1, config, seed), expected) << ahead << " steps, seed " << seed;
  }
}

// The loader's threads write the images to page-locked memory, and the kernel that reads them edits them as threads do.
TEST(StandInSteps, FromALoaderTheyGiveTheSameBits) {
  const std::uint32_t seed = std::random_device{}();
  RigConfig config = on_gpu();
  const testing::Outcome given = testing::train_ahead(1, config, seed);
  config.images = RigImages::augmented;
  testing::Outcome augmented = testing::train_ahead(1, config, seed);
  EXPECT_NE(augmented.losses, given.losses);
  augmented.pixels.assign(given.pixels.size(), 0);
  config.record = true;
  for (const std::size_t ahead : {1, 4}) {
    config.ahead = ahead;
    config.images = RigImages::read;
    EXPECT_EQ(testing::train_ahead(1, config, seed), given) << ahead << " steps, seed " << seed;
    config.images = RigImages::edited;
    EXPECT_EQ(testing::train_ahead(1, config, seed), augmented) << ahead << " steps, seed " << seed;
  }
}

TEST(StandInSteps, KnowWhichOfThoseThatBeginAtOnceIsNotFinite) {
  RigConfig config = on_gpu();
  config.images = RigImages::resident;
  config.record = true;
  testing::halts_within_several(1, config);
}

TEST(StandInSteps, FollowTheCpu) { follow_the_cpu(on_gpu()); }

TEST(StandInSteps, OfMuonFollowTheCpu) { follow_the_cpu(muon_on_gpu()); }

TEST(StandInSteps, OfMuonAheadOfTheHostAndRecordedGiveTheSameBits) {
  const std::uint32_t seed = std::random_device{}();
  RigConfig config = muon_on_gpu();
  const testing::Outcome expected = testing::train_ahead(1, config, seed);
  config.ahead = 4;
  config.record = true;
  EXPECT_EQ(testing::train_ahead(1, config, seed), expected) << "seed " << seed;
}

TEST(StandInSteps, ChangeNothingBehindOneThatIsNotFinite) {
  RigConfig config = on_gpu();
  config.ahead = 5;
  config.record = true;
  testing::halts_and_resumes(1, config);
  config.images = RigImages::resident;
  config.loaded_steps = 5;
  testing::halts_and_resumes(1, config);
}

}  // namespace
}  // namespace ddp
