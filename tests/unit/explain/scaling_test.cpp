// Measurements made up from known costs: the fitted model finds these costs, predicts further ranks, and divides what is
// lost among its causes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "explain/scaling_model.h"
#include "explain/scaling_report.h"

namespace ddp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What a step costs, by the formulae of docs/explain-model.md.
struct World {
  double fixed = 1e-3;
  double per_image = 50e-6;
  double update = 0.3e-3;
  double divided_update = 0;  // of one rank
  double host = 0.1e-3;
  double sharing = 0.08;
  double message = 30e-6;
  double bandwidth = 100e6;
  double bytes = 4e5;
  double jitter = 0.02;
  double load = 0;
  std::int64_t workers = 1;
  std::int64_t ranks_per_host = 1;

  ScalingPoint at(std::int64_t ranks, std::int64_t global_batch) const {
    ScalingPoint point;
    point.layout = {ranks, global_batch, std::min(ranks, ranks_per_host), 1};
    point.hosts = (ranks + ranks_per_host - 1) / ranks_per_host;
    const double n = static_cast<double>(ranks);
    const double images = static_cast<double>(global_batch) / n;
    StepModel& step = point.step;
    step.steps = 100;
    step.compute = (1 + sharing * static_cast<double>(point.layout.ranks_per_host - 1)) * (fixed + per_image * images);
    step.optimizer = update + divided_update / static_cast<double>(point.layout.ranks_per_host);
    step.other = host;
    point.workers = workers;
    point.load_seconds = load * images;
    if (ranks > 1) {
      const double sum = 2 * (n - 1) * message + 2 * (n - 1) / n * bytes / bandwidth;
      point.message_seconds = message;
      point.sums = {{bytes, step.compute, sum}};
      step.communication = sum;
      step.imbalance = jitter * expected_maximum(ranks) * (step.compute + step.optimizer + host);
    }
    step.data_wait = std::max(0.0, load * images / static_cast<double>(workers) - step.training());
    return point;
  }
};

ScalingStudy study_of(const World& world, std::int64_t size, std::int64_t batch) {
  ScalingStudy study{"made up", {}, {}};
  for (std::int64_t ranks = 1; ranks <= size; ranks *= 2) {
    study.strong.push_back(world.at(ranks, batch));
    study.weak.push_back(world.at(ranks, batch * ranks / size));
  }
  return study;
}

TEST(ScalingTest, ExpectedMaximaAreThoseOfTheTables) {
  EXPECT_EQ(expected_maximum(1), 0);
  EXPECT_NEAR(expected_maximum(2), 1 / std::sqrt(std::acos(-1.0)), 1e-4);
  EXPECT_NEAR(expected_maximum(4), 1.02938, 1e-4);
  EXPECT_NEAR(expected_maximum(100), 2.50759, 1e-4);
}

// Without noise the prediction is exact: the model has as many unknowns as the measurements determine.
TEST(ScalingTest, FourAndMoreRanksArePredictedFromOneAndTwo) {
  std::mt19937_64 random(std::random_device{}());
  const auto between = [&](double low, double high) { return std::uniform_real_distribution(low, high)(random); };
  for (int trial = 0; trial < 100; ++trial) {
    World world;
    world.fixed = between(0, 2e-3);
    world.per_image = between(1e-5, 1e-3);
    world.update = between(0, 1e-3);
    world.message = between(0, 100e-6);
    world.bandwidth = between(50e6, 5e9);
    // A sum is not mostly latency, or the fit attributes the rest of it to bandwidth.
    world.bytes = between(1, 5) * world.bandwidth * world.message + 1e5;
    world.jitter = between(0, 0.05);
    world.ranks_per_host = trial % 2 == 0 ? 1 : 64;
    world.sharing = world.ranks_per_host == 1 ? 0 : between(0, 0.2);
    world.divided_update = world.ranks_per_host == 1 ? 0 : between(0, 1e-3);
    const std::int64_t batch = 256;
    const ScalingModel model = fit_scaling(
        std::vector{world.at(1, batch), world.at(1, batch / 4), world.at(2, batch), world.at(2, batch / 2)});
    for (const std::int64_t ranks : {4, 8, 64}) {
      const ScalingPoint truth = world.at(ranks, batch);
      EXPECT_NEAR(model.predict(truth.layout).training() / truth.step.training(), 1, 1e-3) << "trial " << trial;
    }
  }
}

TEST(ScalingTest, BucketsAreHiddenByBackward) {
  World world;
  ScalingPoint two = world.at(2, 256);
  const double backward_ends = two.step.compute;
  // The first of two buckets is done when backward ends; the second begins then.
  two.overlaps = true;
  two.sums = {{3e5, 0.3 * backward_ends, 3.06e-3}, {1e5, backward_ends, 1.06e-3}};
  two.step.communication = 1.06e-3;
  const ScalingModel model = fit_scaling(std::vector{world.at(1, 256), world.at(1, 64), two});
  EXPECT_NEAR(model.predict(two.layout).communication, 1.06e-3, 1e-6);
  // On a slow computer nothing but the last bucket is exposed; on four ranks 1.5 times as many bytes and 6 messages.
  ScalingLayout four = two.layout;
  four.ranks = 4;
  four.global_batch = 512;
  EXPECT_NEAR(model.predict(four).communication, 1.5e-3 + 6 * world.message, 2e-5);
}

// Sums that take longer than their fastest are hidden by backward as well, and do not take longer for more bytes.
TEST(ScalingTest, DelaysOfSumsAreAsLongOnMoreRanks) {
  World world;
  world.bytes = 4e6;
  world.per_image = 400e-6;
  ScalingPoint two = world.at(2, 256);
  const double backward_ends = two.step.compute;
  const double fastest = two.sums[0].seconds;
  constexpr double kDelay = 12e-3;
  two.overlaps = true;
  two.sums[0].ready = backward_ends - 30e-3;
  two.step.communication = fastest + kDelay - 30e-3;
  const ScalingModel model = fit_scaling(std::vector{world.at(1, 256), world.at(1, 64), two});
  EXPECT_NEAR(model.delay, kDelay, 1e-6);
  EXPECT_NEAR(model.predict(two.layout).communication, two.step.communication, 1e-6);
  ScalingLayout four = two.layout;
  four.ranks = 4;
  const double moved = 1.5 * (fastest - 2 * world.message) + 6 * world.message;
  const StepModel predicted = model.predict(four);
  const double hidden = 30e-3 * predicted.compute / backward_ends;
  EXPECT_NEAR(predicted.communication, moved + kDelay - hidden, 1e-6);
  // With two ranks on a core each waits for it twice as long.
  four.threads_per_core = 2;
  EXPECT_NEAR(model.predict(four).communication, moved + 2 * kDelay - 2 * hidden, 1e-6);
}

// What sharing a core costs is measured with two ranks on one core: here each computes 1.7 times as long, and the sums wait
// for 5 ms. Each waits for its turn 40% of its own time.
TEST(ScalingTest, RanksThatShareCoresArePredictedFromTwoThatDo) {
  World world;
  world.ranks_per_host = 4;
  constexpr double kLonger = 1.7;
  constexpr double kDelay = 5e-3;
  ScalingPoint crowded = world.at(2, 128);
  crowded.layout.threads_per_core = 2;
  StepModel& step = crowded.step;
  step.compute = kLonger * (world.fixed + 64 * world.per_image);
  step.optimizer *= kLonger;
  step.other *= kLonger;
  step.communication += kDelay;
  constexpr double kTurns = 0.4;
  step.imbalance = kTurns * (step.data_wait + step.compute + step.optimizer + step.other);
  const std::vector<ScalingPoint> points = {world.at(1, 256), world.at(1, 64), world.at(2, 256), world.at(2, 128),
                                            crowded};
  const ScalingModel model = fit_scaling(points);
  EXPECT_NEAR(model.core_sharing, kLonger - 1, 1e-9);
  EXPECT_NEAR(model.predict(crowded.layout).training(), step.training(), 1e-9);
  ScalingLayout four = world.at(4, 256).layout;
  four.threads_per_core = 2;
  const StepModel predicted = model.predict(four);
  // Two of them run at the same time.
  EXPECT_NEAR(predicted.compute, (1 + world.sharing) * step.compute, 1e-9);
  const double sum = 6 * world.message + 1.5 * world.bytes / world.bandwidth;
  EXPECT_NEAR(predicted.communication, sum + kDelay, 1e-9);
  // Four vary more than two, but wait no longer for their turns.
  const double more = world.jitter * (expected_maximum(4) - expected_maximum(2));
  EXPECT_NEAR(predicted.imbalance, (kTurns + more) * (predicted.compute + predicted.optimizer + predicted.other), 1e-9);
}

TEST(ScalingTest, TheLostTimeIsCompleteAndHasTheRightCauses) {
  World world;
  world.ranks_per_host = 4;
  const ScalingStudy study = study_of(world, 4, 256);
  std::vector<ScalingPoint> points = study.strong;
  points.insert(points.end(), study.weak.begin(), study.weak.end());
  const ScalingModel model = fit_scaling(points);
  for (const auto* series : {&study.strong, &study.weak}) {
    const ScalingPoint& one = series->front();
    for (const ScalingPoint& point : *series) {
      const Lost lost = lost_time(point, one, model);
      const double part = point.batch_per_rank() / one.batch_per_rank();
      EXPECT_NEAR(lost.sum(), point.step.training() - part * one.step.training(), 1e-9);
      if (point.layout.ranks == 1) continue;
      EXPECT_NEAR(lost.communication, point.step.communication, 1e-12);
      EXPECT_NEAR(lost.slower_ranks, point.step.imbalance, 1e-12);
    }
  }
  const Lost lost = lost_time(study.strong.back(), study.strong.front(), model);
  EXPECT_NEAR(lost.smaller_batch, world.fixed * 3 / 4, 1e-7);
  EXPECT_NEAR(lost.shared_host, 3 * world.sharing * (world.fixed + 64 * world.per_image), 1e-6);
  EXPECT_NEAR(lost.update, (world.update + world.host) * 3 / 4, 1e-9);
}

TEST(ScalingTest, LoadingIsPredictedFromTheWorkers) {
  World world;
  world.load = 200e-6;
  world.bytes = 1e3;
  const ScalingModel model =
      fit_scaling(std::vector{world.at(1, 256), world.at(1, 64), world.at(2, 256), world.at(2, 128)});
  const ScalingPoint four = world.at(4, 256);
  ASSERT_GT(four.step.data_wait, 0);
  EXPECT_NEAR(model.predict(four.layout).training() / four.step.training(), 1, 0.01);
}

TEST(ScalingTest, TheAnswerNamesTheCauseAndTheGain) {
  World world;
  world.bytes = 2e6;
  const ScalingStudy study = study_of(world, 4, 256);
  const std::string answer = scaling_answer(study, {});
  EXPECT_THAT(answer, HasSubstr("4 ranks give 0.4"));
  EXPECT_THAT(answer, HasSubstr("of a step is communication that nothing hides"));
  EXPECT_THAT(answer, HasSubstr("with --global-batch 1024 it would be"));
  const Cure ring{.options = {{"reduction", "ring"}}, .step_seconds = 0.01, .speedup = 2};
  EXPECT_THAT(scaling_answer(study, std::vector{ring}), HasSubstr("with --reduction ring it would be 0.8"));
  World good;
  good.bytes = good.fixed = good.update = good.host = good.message = good.jitter = good.sharing = 0;
  EXPECT_EQ(scaling_answer(study_of(good, 4, 256), {}),
            "4 ranks give 4.00x the images/s of 1 rank; nothing that matters is lost");
  EXPECT_THAT(scaling_answer(study_of(good, 1, 256), {}), HasSubstr("one rank only"));
}

TEST(ScalingTest, ASharedGpuIsNamed) {
  World world;
  world.bytes = world.message = world.update = world.host = world.jitter = 0;
  world.sharing = 1;
  world.ranks_per_host = 4;
  ScalingStudy study = study_of(world, 4, 256);
  EXPECT_THAT(scaling_answer(study, {}), HasSubstr("of a step is lost because the ranks of a host share its cores"));
  EXPECT_THAT(scaling_text(study), HasSubstr("shared host"));
  study.shares_gpus = true;
  EXPECT_THAT(scaling_answer(study, {}), HasSubstr("of a step is lost because ranks share a GPU"));
  EXPECT_THAT(scaling_text(study), HasSubstr("shared GPU"));
}

TEST(ScalingTest, TablesAndCurveHaveEveryMeasurement) {
  World world;
  const ScalingStudy study = study_of(world, 4, 256);
  const std::string text = scaling_text(study);
  for (const char* words : {"strong scaling", "weak scaling", "communication", "smaller batch",
                            "model: ", "check: 4 ranks: ", "0.0%)", "# measured, . estimated"}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
  const std::vector<ScalingCheck> checks = check_predictions(study);
  ASSERT_EQ(checks.size(), 1U);
  EXPECT_NEAR(checks[0].error(), 0, 1e-3);
  const std::string svg = scaling_svg(study);
  EXPECT_THAT(svg, HasSubstr("<svg xmlns="));
  EXPECT_THAT(svg, HasSubstr("the same batch per rank"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  // One rank draws no curve, but has its tables.
  EXPECT_THAT(scaling_text(study_of(world, 1, 256)), HasSubstr("strong scaling"));
}

}  // namespace
}  // namespace ddp
