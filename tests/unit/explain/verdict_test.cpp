// Runs with a known cause, made up from their times: the verdict, its cure and the predicted gain.
#include "explain/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace ddp {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double kSteps = 100;

// A run of 2 ranks on one host whose step takes 10 ms: 9 ms of compute, and a little of everything else.
RunTiming healthy() {
  RunTiming timing;
  RunFacts& facts = timing.facts;
  facts.hosts = {"a", "a"};
  facts.machines = {0, 0};
  facts.threads = {1, 1};
  facts.cpus = {2, 2};
  facts.samples = {32, 32};
  facts.workers = 1;
  facts.global_batch = 64;
  facts.shards = 2;
  facts.steps_per_epoch = 50;
  facts.reduction = "ring";
  facts.flops_per_sample = 1e6;
  facts.peak_flops = 1e10;
  facts.bucket_bytes = {1e6};
  timing.complete = true;
  timing.evaluations = 2;
  timing.checkpoints = 2;
  timing.buckets = {{0.009, 0.009, 0.0095, 0.0004}};
  RankTiming rank;
  rank.steps = kSteps;
  rank.phases[Phase::data_wait] = 0.1e-3 * kSteps;
  rank.phases[Phase::forward] = 3e-3 * kSteps;
  rank.phases[Phase::backward] = 6e-3 * kSteps;
  rank.phases[Phase::exposed_communication] = 0.4e-3 * kSteps;
  rank.phases[Phase::optimizer] = 0.2e-3 * kSteps;
  rank.phases[Phase::evaluation] = 0.2e-3 * kSteps;
  rank.phases[Phase::other] = 0.1e-3 * kSteps;
  rank.best_work = 9e-3;
  rank.cpu_seconds = 9e-3 * kSteps;
  rank.loader = {kSteps, 3 * kSteps, 1e-3 * kSteps};
  timing.ranks = {rank, rank};
  return timing;
}

RunTiming with(const std::function<void(RankTiming&)>& change, RunTiming timing = healthy()) {
  for (RankTiming& rank : timing.ranks) change(rank);
  return timing;
}

TEST(VerdictTest, NothingIsWrongWithAHealthyRun) {
  const Explanation found = explain(healthy(), {});
  EXPECT_EQ(found.cause, Cause::none);
  EXPECT_THAT(found.cures, IsEmpty());
  EXPECT_THAT(found.also, IsEmpty());
  EXPECT_NEAR(found.images_per_second, 64 / 10e-3, 1);
  // 64 samples of 1 MFLOP in 10 ms on two devices of 10 GFLOP/s.
  EXPECT_THAT(describe(found), HasSubstr("32% of the devices' peak"));
  EXPECT_THAT(brief(found), HasSubstr("nothing is wrong: the devices compute 90% of the time"));
}

TEST(VerdictTest, ASlowLoaderNeedsMoreWorkers) {
  // A batch takes one worker 30 ms, the rest of the step 9.9 ms.
  const RunTiming slow = with([](RankTiming& rank) {
    rank.phases[Phase::data_wait] = 20.1e-3 * kSteps;
    rank.loader = {kSteps, 0, 30e-3 * kSteps};
  });
  const Explanation found = explain(slow, {});
  EXPECT_EQ(found.cause, Cause::input);
  ASSERT_EQ(found.cures.size(), 1U);
  EXPECT_EQ(found.cures[0].text(), "--workers 4");
  EXPECT_NEAR(found.cures[0].speedup, 30.0 / 9.9, 0.05);
  EXPECT_FALSE(found.cures[0].changes_training);
}

TEST(VerdictTest, MoreWorkersDoNotHelpWhereTheCoresAreBusy) {
  // Two ranks on two cores, each with 9.3 ms of work and 18.7 ms of loading on a core.
  RunTiming slow = with([](RankTiming& rank) {
    rank.phases[Phase::data_wait] = 20.1e-3 * kSteps;
    rank.loader = {kSteps, 0, 30e-3 * kSteps, 18.7e-3 * kSteps};
    rank.cpu_seconds = 28e-3 * kSteps;
  });
  const Explanation found = explain(slow, {});
  EXPECT_EQ(found.cause, Cause::input);
  EXPECT_NEAR(found.cures.at(0).speedup, 30.0 / 28.2, 0.01);
  EXPECT_THAT(describe(found), HasSubstr("the cores are busy"));
  // Waiting by polling takes no time from the workers.
  for (RankTiming& rank : slow.ranks) rank.loader.cpu_seconds = 0.2e-3 * kSteps;
  EXPECT_NEAR(explain(slow, {}).cures.at(0).speedup, 30.0 / 9.9, 0.05);
}

TEST(VerdictTest, WithoutDataWaitTheRanksWaitLessForOneAnother) {
  // 20.1 ms of data wait that vary make each rank wait for the other 3 ms of a step.
  const RunTiming slow = with([](RankTiming& rank) {
    rank.phases[Phase::data_wait] = 20.1e-3 * kSteps;
    rank.phases[Phase::exposed_communication] += 3e-3 * kSteps;
    rank.loader = {kSteps, 0, 30e-3 * kSteps, 1e-3 * kSteps};
  });
  const Explanation found = explain(slow, {});
  EXPECT_EQ(found.cause, Cause::input);
  EXPECT_NEAR(found.cures.at(0).step_seconds, 9.9e-3 + 3e-3 * 9.3 / 29.4, 0.2e-3);
}

// 2 ranks whose sums of 1 MB take 100 ms at 10 MB/s. Each sends 1 MB in a step, of which 0.8 MB are for linear layers that would
// exchange 50 KB instead.
RunTiming with_divisible_layers() {
  RunTiming timing = with([](RankTiming& rank) { rank.phases[Phase::exposed_communication] = 0.1 * kSteps; });
  timing.buckets[0].shortest = 0.1;
  timing.facts.divisible = {.names = {"fc1", "fc2"}, .activations = 5e4, .gradients = 8e5};
  return timing;
}

TEST(VerdictTest, LinearLayersWithMostOfTheGradientAreToBeDivided) {
  const Explanation found = explain(with_divisible_layers(), {});
  EXPECT_EQ(found.cause, Cause::bandwidth);
  ASSERT_EQ(found.cures.size(), 3U);
  EXPECT_EQ(found.cures[0].text(), "--split-linear fc1,fc2");
  EXPECT_FALSE(found.cures[0].changes_training);
  // 20% of the sums, 20 ms, and 5 ms for the activations remain of 100 ms.
  EXPECT_NEAR(found.cures[0].speedup, 109.6 / 34.6, 0.02);
  EXPECT_THAT(describe(found), HasSubstr("are gradients of fc1, fc2; divided among the ranks, "));
}

TEST(VerdictTest, WhatBackwardHidesOfDividedLayersIsNoGain) {
  RunTiming timing = with_divisible_layers();
  timing.facts.overlaps = true;
  timing.facts.bucket_bytes = {8e5, 2e5};
  // The sum of the linear layers is ready after 4.1 of 9.1 ms and takes 5 ms; the other one takes 20 ms and is not hidden.
  timing.buckets = {{4.1e-3, 4.1e-3, 9.1e-3, 5e-3}, {9.1e-3, 9.1e-3, 29.1e-3, 20e-3}};
  for (RankTiming& rank : timing.ranks) rank.phases[Phase::exposed_communication] = 20e-3 * kSteps;
  const StepModel model = step_model(timing);
  const StepModel cured = with_divided_layers(timing, model);
  // 40 MB/s: the exchange takes 1.25 ms, and nothing is won.
  EXPECT_NEAR(cured.communication, 20e-3 + 5e4 / 40e6, 1e-5);
}

TEST(VerdictTest, LayersAreNotDividedWhereThatIsImpossibleOrSmall) {
  const auto divides = [](const RunTiming& timing, const std::function<void(Options&)>& change) {
    Options options;
    change(options);
    return describe(explain(timing, options)).find("--split-linear") != std::string::npos;
  };
  const RunTiming timing = with_divisible_layers();
  EXPECT_TRUE(divides(timing, [](Options&) {}));
  EXPECT_FALSE(divides(timing, [](Options& o) { o.optimizer.deterministic = true; }));
  EXPECT_FALSE(divides(timing, [](Options& o) { o.optimizer.optimizer = UpdateRule::muon; }));
  EXPECT_FALSE(divides(timing, [](Options& o) { o.batch.balance = true; }));
  EXPECT_FALSE(divides(timing, [](Options& o) { o.distributed.split_linear = "fc1"; }));
  RunTiming small = timing;
  small.facts.divisible.gradients = 4e5;
  EXPECT_FALSE(divides(small, [](Options&) {}));
}

TEST(VerdictTest, TheKindOfCommunicationIsNamed) {
  const auto slow_sums = [](double bytes, double seconds) {
    RunTiming timing = with([&](RankTiming& rank) { rank.phases[Phase::exposed_communication] = seconds * kSteps; });
    timing.facts.bucket_bytes = {bytes};
    timing.buckets[0].shortest = seconds;
    return timing;
  };
  const Explanation bandwidth = explain(slow_sums(1e6, 0.1), {});
  EXPECT_EQ(bandwidth.cause, Cause::bandwidth);
  // A batch four times as large makes the 9.1 ms that grow with it four times as long.
  ASSERT_EQ(bandwidth.cures.size(), 2U);
  EXPECT_EQ(bandwidth.cures[0].text(), "--batch-per-rank 128");
  EXPECT_EQ(bandwidth.cures[1].text(), "--gradient-precision bf16");
  EXPECT_NEAR(bandwidth.cures[1].speedup, 109.6 / 59.6, 0.02);
  EXPECT_TRUE(bandwidth.cures[0].changes_training && bandwidth.cures[1].changes_training);
  EXPECT_NEAR(bandwidth.cures[0].speedup, 4 * 109.6 / (109.6 + 3 * 9.3), 0.02);
  EXPECT_EQ(explain(slow_sums(4e3, 0.01), {}).cause, Cause::latency);
  RunTiming root = slow_sums(1e6, 0.01);
  root.facts.reduction = "root";
  const Explanation by_root = explain(root, {});
  EXPECT_EQ(by_root.cause, Cause::root_reduction);
  EXPECT_EQ(by_root.cures.at(0).text(), "--reduction ring");
  // Two ranks: half the time.
  EXPECT_NEAR(by_root.cures.at(0).speedup, 19.6 / 14.6, 0.01);
  RunTiming late = slow_sums(1e6, 0.01);
  late.facts.overlaps = true;
  late.facts.bucket_bytes = {1e5, 9e5};
  late.buckets = {{0, 0, 0, 0.001}, {0, 0, 0, 0.009}};
  EXPECT_EQ(explain(late, {}).cause, Cause::late_bucket);
}

TEST(VerdictTest, FixedWorkMeansTooSmallABatch) {
  const RunTiming small = with([](RankTiming& rank) {
    rank.phases[Phase::forward] = 0.1e-3 * kSteps;
    rank.phases[Phase::backward] = 0.3e-3 * kSteps;
  });
  const Explanation found = explain(small, {});
  EXPECT_EQ(found.cause, Cause::small_batch);
  EXPECT_EQ(found.cures.at(0).text(), "--batch-per-rank 128");
  EXPECT_NEAR(found.cures.at(0).speedup, 4 * 1.4 / (1.4 + 3 * 0.7), 0.01);
}

// What a probe answers, and what it was asked for.
struct KnownSteps {
  std::vector<StepShape> asked;
  std::optional<std::vector<ProbedStep>> answer;
  StepProbe probe() {
    return [this](std::span<const StepShape> shapes) {
      asked.assign(shapes.begin(), shapes.end());
      return answer;
    };
  }
};

TEST(VerdictTest, ALargerBatchIsPredictedFromMeasuredSteps) {
  const RunTiming small = with([](RankTiming& rank) {
    rank.phases[Phase::forward] = 0.1e-3 * kSteps;
    rank.phases[Phase::backward] = 0.3e-3 * kSteps;
  });
  // On the ranks of the probe everything takes half as long, and four times the batch 2.5 times as long.
  KnownSteps steps{{}, {{{0.2e-3, 0.1e-3}, {0.5e-3, 0.1e-3}}}};
  const Explanation found = explain(small, {}, steps.probe());
  EXPECT_EQ(steps.asked, (std::vector<StepShape>{{32, 1}, {128, 1}}));
  // 0.3 of 1.4 ms, data wait and evaluations, grow four-fold, and 0.4 ms of compute 2.5-fold.
  EXPECT_NEAR(found.cures.at(0).step_seconds, 1.4e-3 + 3 * 0.3e-3 + 1.5 * 0.4e-3, 1e-6);
  EXPECT_NEAR(found.cures.at(0).speedup, 4 * 1.4 / 2.9, 0.001);
  EXPECT_THAT(describe(found), Not(HasSubstr("at least")));
  steps.answer.reset();
  EXPECT_THAT(describe(explain(small, {}, steps.probe())), HasSubstr("at least"));
}

TEST(VerdictTest, NothingIsMeasuredForCuresThatTheTimingExplains) {
  KnownSteps steps;
  const RunTiming slow = with([](RankTiming& rank) { rank.phases[Phase::evaluation] = 40e-3 * kSteps; });
  EXPECT_EQ(explain(slow, {}, steps.probe()).cause, Cause::evaluation);
  EXPECT_THAT(steps.asked, IsEmpty());
}

TEST(VerdictTest, FewerThreadsArePredictedFromMeasuredSteps) {
  RunTiming own = with([](RankTiming& rank) {
    rank.core_wait = 10e-3 * kSteps;
    rank.loader.cpu_seconds = 0;
  });
  own.facts.threads = {2, 2};
  KnownSteps steps{{}, {{{3e-3, 0.1e-3}}}};
  Explanation found = explain(own, {}, steps.probe());
  EXPECT_EQ(steps.asked, (std::vector<StepShape>{{32, 1}}));
  // 9 ms of compute take 3 ms; so the other 0.1 ms, and 0.1 ms of data wait take a third.
  EXPECT_NEAR(found.cures.at(0).step_seconds, 3e-3 + 0.1e-3 + 2 * 0.1e-3 / 3 + 0.4e-3 + 0.2e-3, 1e-6);
  EXPECT_FALSE(found.cures.at(0).lower_bound);
  // Loading takes as much of the cores as then are free, and more.
  for (RankTiming& rank : own.ranks) rank.loader.cpu_seconds = 5e-3 * kSteps;
  found = explain(own, {}, steps.probe());
  EXPECT_NEAR(found.cures.at(0).step_seconds, 3e-3 + 0.1e-3 + 5e-3 + 0.2e-3, 1e-6);
}

TEST(VerdictTest, AGpuThatWaitsForItsHostIsLaunchBound) {
  RunTiming timing = with([](RankTiming& rank) { rank.phases[Phase::other] = 6e-3 * kSteps; });
  timing.facts.gpu = true;
  Options options;
  options.device.cuda_graph = GraphMode::off;
  const Explanation found = explain(timing, options);
  EXPECT_EQ(found.cause, Cause::launch);
  EXPECT_EQ(found.cures.at(0).text(), "--cuda-graph auto");
}

// Two stages that take 6 and 3.2 ms of a step with 4 micro-batches: 2.3 ms for one through both, 4.5 ms for the others in the
// first. So the ranks wait 0.8 and 3.6 ms; and 1 ms more.
RunTiming pipelined() {
  RunTiming timing = healthy();
  timing.facts.pipeline = {2, 4, {"conv1 to pool1", "fc1"}, 5e-3};
  timing.facts.shards = 4;
  timing.ranks[0].phases[Phase::forward] = 2e-3 * kSteps;
  timing.ranks[0].phases[Phase::backward] = 4e-3 * kSteps;
  timing.ranks[0].phases[Phase::exposed_communication] = 1.8e-3 * kSteps;
  timing.ranks[1].phases[Phase::forward] = 1e-3 * kSteps;
  timing.ranks[1].phases[Phase::backward] = 2.2e-3 * kSteps;
  timing.ranks[1].phases[Phase::exposed_communication] = 4.6e-3 * kSteps;
  timing.ranks[1].loader = {kSteps, 3 * kSteps, 1e-9 * kSteps};
  return timing;
}

TEST(VerdictTest, StagesOfAPipelineAreNoStragglers) {
  const Explanation found = explain(pipelined(), {});
  EXPECT_EQ(found.cause, Cause::pipeline);
  EXPECT_THAT(found.also, IsEmpty());
  EXPECT_NEAR(found.model.seconds(), 8.4e-3, 1e-9);
  EXPECT_NEAR(found.model.imbalance, 2.2e-3, 1e-9);
  EXPECT_NEAR(found.model.communication, 1e-3, 1e-9);
  const std::string text = describe(found);
  EXPECT_THAT(text, HasSubstr("verdict: pipeline: the stages wait for each other 38% of the time"));
  EXPECT_THAT(text, HasSubstr("with 2 stages and 4 micro-batches per step, ranks wait 20% of the passes"));
  EXPECT_THAT(text, HasSubstr("1.15 ms of a step"));
  EXPECT_THAT(text, HasSubstr("6 ms in conv1 to pool1, 3.2 ms in fc1: 1.05 ms of waiting for the longest stage"));
  EXPECT_THAT(text, HasSubstr("2.200 ms waiting for other stages"));
  ASSERT_EQ(found.cures.size(), 1U);
  EXPECT_EQ(found.cures[0].text(), "--pipeline 1");
  EXPECT_NEAR(found.cures[0].step_seconds, 5.6e-3, 1e-9);
  // Where data parallelism would be slower, that is no cure.
  RunTiming better = pipelined();
  better.facts.pipeline.data_parallel_seconds = 8e-3;
  EXPECT_THAT(explain(better, {}).cures, IsEmpty());
}

// The loader of the first stage is the only one that reads images.
TEST(VerdictTest, APipelineWaitsForTheImagesOfItsFirstStage) {
  RunTiming timing = pipelined();
  timing.ranks[0].phases[Phase::data_wait] = 20e-3 * kSteps;
  timing.ranks[0].loader = {kSteps, 0, 27e-3 * kSteps};
  timing.ranks[1].phases[Phase::exposed_communication] += 19.9e-3 * kSteps;
  const Explanation found = explain(timing, {});
  EXPECT_EQ(found.cause, Cause::input);
  EXPECT_NEAR(found.model.data_wait, 20e-3, 1e-9);
  EXPECT_THAT(describe(found), HasSubstr("loading a batch takes 27 ms of one worker"));
}

TEST(VerdictTest, ASlowRankIsNamedWithHostAndPhase) {
  RunTiming timing = healthy();
  timing.facts.hosts = {"a", "b"};
  timing.facts.machines = {0, 1};
  timing.facts.cpus = {1, 1};
  timing.ranks[1].phases[Phase::backward] += 9e-3 * kSteps;
  timing.ranks[0].phases[Phase::exposed_communication] += 9e-3 * kSteps;
  const Explanation found = explain(timing, {});
  EXPECT_EQ(found.cause, Cause::straggler);
  EXPECT_THAT(found.headline, HasSubstr("rank 1 on b"));
  EXPECT_THAT(found.headline, HasSubstr("1.96 times"));
  EXPECT_THAT(found.headline, HasSubstr("backward"));
  EXPECT_THAT(found.advice, HasSubstr("compare b"));
  timing.ranks[1].slowest = 4;
  timing.ranks[0].slowest = 1;
  EXPECT_THAT(describe(explain(timing, {})), HasSubstr("the slowest rank in 4 of 5 intervals"));
  // With a waiting core the reason is another program.
  timing.ranks[1].core_wait = 9e-3 * kSteps;
  EXPECT_THAT(explain(timing, {}).advice, HasSubstr("other programs on the cores of rank 1 on b"));
}

TEST(VerdictTest, ShardsAreDividedByTheSpeedOfASlowRank) {
  // Rank 1 takes twice the time for its four shards: 9.1 ms and 18.2 ms, and 0.3 ms for the rest.
  RunTiming timing = healthy();
  timing.facts.shards = 8;
  timing.ranks[1].phases[Phase::data_wait] *= 2;
  timing.ranks[1].phases[Phase::forward] *= 2;
  timing.ranks[1].phases[Phase::backward] *= 2;
  timing.ranks[0].phases[Phase::exposed_communication] += 9.1e-3 * kSteps;
  const Explanation found = explain(timing, {});
  EXPECT_EQ(found.cause, Cause::straggler);
  ASSERT_EQ(found.cures.size(), 1U);
  EXPECT_EQ(found.cures[0].text(), "--balance on");
  EXPECT_FALSE(found.cures[0].changes_training || found.cures[0].lower_bound);
  // Five shards and three: 11.4 ms and 13.65 ms in place of 18.2 ms.
  EXPECT_NEAR(found.cures[0].step_seconds, found.model.seconds() - 4.55e-3, 0.2e-3);
  Options options;
  options.batch.balance = true;
  EXPECT_THAT(explain(timing, options).cures, IsEmpty());
  // With one shard for each rank there is nothing to move.
  timing.facts.shards = 2;
  EXPECT_THAT(explain(timing, {}).cures, IsEmpty());
  EXPECT_THAT(explain(timing, {}).advice, HasSubstr("--logical-shards 16 --balance on"));
  timing.facts.shards = 8;
  timing.ranks[1].core_wait = 9e-3 * kSteps;
  EXPECT_THAT(explain(timing, {}).cures, IsEmpty()) << "the other programs are to be ended";
}

// 15% make two ranks lose 7%, but each of eight 13%.
TEST(VerdictTest, AStragglerIsMeasuredByWhatTheRanksLose) {
  RunTiming timing = healthy();
  timing.ranks[1].phases[Phase::backward] += 1.4e-3 * kSteps;
  timing.ranks[0].phases[Phase::exposed_communication] += 1.4e-3 * kSteps;
  EXPECT_EQ(explain(timing, {}).cause, Cause::none);
  const RankTiming usual = timing.ranks[0];
  timing.facts.global_batch = 8 * 32;
  timing.facts.hosts.resize(8, "a");
  timing.facts.machines.resize(8, 0);
  timing.facts.threads.resize(8, 1);
  timing.facts.cpus.assign(8, 8);
  timing.facts.samples.resize(8, 32);
  timing.ranks.resize(8, usual);
  EXPECT_EQ(explain(timing, {}).cause, Cause::straggler);
}

TEST(VerdictTest, UnevenShardsAreNotAStraggler) {
  RunTiming timing = healthy();
  timing.facts.samples = {43, 21};
  timing.facts.shards = 3;
  timing.ranks[0].phases[Phase::backward] += 3e-3 * kSteps;
  timing.ranks[1].phases[Phase::backward] -= 3e-3 * kSteps;
  timing.ranks[1].phases[Phase::exposed_communication] += 6e-3 * kSteps;
  const Explanation found = explain(timing, {});
  EXPECT_EQ(found.cause, Cause::uneven_shards);
  EXPECT_EQ(found.cures.at(0).text(), "--logical-shards 4");
  EXPECT_NEAR(found.cures.at(0).speedup, 13.0 / 10.0, 0.01);
}

TEST(VerdictTest, EvaluationsAndCheckpointsOnTheCriticalPath) {
  const Explanation evaluation =
      explain(with([](RankTiming& rank) { rank.phases[Phase::evaluation] = 40e-3 * kSteps; }), {});
  EXPECT_EQ(evaluation.cause, Cause::evaluation);
  ASSERT_EQ(evaluation.cures.size(), 2U);
  EXPECT_EQ(evaluation.cures[0].text(), "--eval-every 10");
  EXPECT_NEAR(evaluation.cures[0].speedup, 49.8 / 13.8, 0.01);
  EXPECT_EQ(evaluation.cures[1].text(), "--eval-on all");
  EXPECT_NEAR(evaluation.cures[1].speedup, 49.8 / 29.8, 0.01);
  Options options;
  options.output.checkpoint_every = 5;
  options.output.eval_every = 0;
  const Explanation checkpoint =
      explain(with([](RankTiming& rank) { rank.phases[Phase::checkpoint] = 40e-3 * kSteps; }), options);
  EXPECT_EQ(checkpoint.cause, Cause::checkpoint);
  EXPECT_EQ(checkpoint.cures.at(0).text(), "--checkpoint-every 50");
  EXPECT_NEAR(checkpoint.cures.at(0).speedup, 50.0 / 14.0, 0.01);
}

TEST(VerdictTest, TooManyThreadsAreDistinguishedFromOtherPrograms) {
  RunTiming own = with([](RankTiming& rank) { rank.core_wait = 10e-3 * kSteps; });
  own.facts.threads = {2, 2};
  const Explanation found = explain(own, {});
  EXPECT_EQ(found.cause, Cause::oversubscribed);
  EXPECT_EQ(found.cures.at(0).text(), "--threads 1");
  const Explanation others = explain(with([](RankTiming& rank) { rank.core_wait = 5e-3 * kSteps; }), {});
  EXPECT_EQ(others.cause, Cause::oversubscribed);
  EXPECT_THAT(others.headline, HasSubstr("other programs"));
  EXPECT_THAT(others.cures, IsEmpty());
}

TEST(VerdictTest, SumsThatWaitForCoresAreNoMatterOfTheNetwork) {
  RunTiming timing = with([](RankTiming& rank) {
    rank.phases[Phase::exposed_communication] = 0.1 * kSteps;
    rank.core_wait = 0.1 * kSteps;
  });
  timing.buckets[0].shortest = 0.1;
  timing.facts.threads = {2, 2};
  EXPECT_EQ(explain(timing, {}).cause, Cause::oversubscribed);
  timing.facts.hosts = {"a", "b"};
  EXPECT_EQ(explain(timing, {}).cause, Cause::bandwidth) << "between two hosts there is a network";
}

TEST(VerdictTest, ContainersOfOneMachineShareItsCores) {
  RunTiming timing = with([](RankTiming& rank) { rank.core_wait = 10e-3 * kSteps; });
  timing.facts.hosts = {"pod-1", "pod-2"};
  timing.facts.threads = {2, 2};
  EXPECT_THAT(explain(timing, {}).headline,
              HasSubstr("4 compute threads share 2 cores of the machine on which pod-1, pod-2 run"));
  timing.facts.machines = {0, 1};
  EXPECT_THAT(explain(timing, {}).headline, HasSubstr("other programs")) << "two machines have enough cores";
}

TEST(VerdictTest, AHotGpuIsNamedAndNotCalledAStraggler) {
  RunTiming hot = with([](RankTiming& rank) { rank.gpu_clock = {.samples = 20, .speed = 19, .heat = 0, .power = 20}; });
  hot.facts.gpu = true;
  EXPECT_EQ(explain(hot, {}).cause, Cause::none) << "5% below the highest clock is usual at the power limit";
  hot.ranks[0].phases[Phase::exposed_communication] += 6e-3 * kSteps;
  hot.ranks[1].phases[Phase::backward] += 6e-3 * kSteps;
  EXPECT_EQ(explain(hot, {}).cause, Cause::straggler);
  hot.ranks[1].gpu_clock = {.samples = 20, .speed = 12, .heat = 19, .power = 3};
  const Explanation found = explain(hot, {});
  EXPECT_EQ(found.cause, Cause::throttled);
  EXPECT_THAT(found.headline, HasSubstr("the GPU of rank 1 on a runs at 60% of its highest clock because of heat"));
  EXPECT_THAT(describe(found),
              HasSubstr("heat reduces its clock in 95% of 20 samples, power in 15%; such GPUs: 1 of 2"));
  EXPECT_THAT(found.also, IsEmpty());
  hot.ranks[1].gpu_clock = {.samples = 20, .speed = 12, .heat = 1, .power = 19};
  EXPECT_THAT(explain(hot, {}).headline, HasSubstr("because of its power limit or supply"));
  hot.ranks[1].gpu_clock = {.samples = 20, .speed = 6, .heat = 2, .power = 0};
  EXPECT_EQ(explain(hot, {}).cause, Cause::straggler) << "a low clock without heat is that of a GPU that waits";
}

TEST(VerdictTest, TheLargestCauseComesFirstAndTheOthersAreMentioned) {
  const Explanation found = explain(with([](RankTiming& rank) {
                                      rank.phases[Phase::evaluation] = 10e-3 * kSteps;
                                      rank.phases[Phase::data_wait] = 40e-3 * kSteps;
                                    }),
                                    {});
  EXPECT_EQ(found.cause, Cause::input);
  ASSERT_EQ(found.also.size(), 1U);
  EXPECT_THAT(found.also[0], HasSubstr("evaluation"));
  EXPECT_THAT(describe(found), Not(HasSubstr("nothing is wrong")));
}

TEST(StepModelTest, TheModelAddsUpToTheWallTime) {
  RunTiming timing = healthy();
  timing.ranks[1].phases[Phase::backward] += 2e-3 * kSteps;
  timing.ranks[0].phases[Phase::exposed_communication] += 2e-3 * kSteps;
  EXPECT_NEAR(step_model(timing).seconds(), timing.ranks[0].phases.sum() / kSteps, 1e-12);
  EXPECT_NEAR(step_model(timing).imbalance, 1e-3, 1e-12);
}

TEST(StepModelTest, WorkersReadWhileTheStepComputes) {
  EXPECT_DOUBLE_EQ(predicted_data_wait(0.03, 0, 0.01), 0.03);
  EXPECT_DOUBLE_EQ(predicted_data_wait(0.03, 1, 0.01), 0.02);
  EXPECT_DOUBLE_EQ(predicted_data_wait(0.03, 3, 0.01), 0);
}

}  // namespace
}  // namespace ddp
