#include "explain/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "base/file.h"
#include "options/table/table.h"
#include "support/errors.h"
#include "support/temporary_folder.h"

namespace ddp {
namespace {

using ::testing::HasSubstr;

std::vector<StepRecord> steps_of(std::int64_t from, std::int64_t to) {
  std::vector<StepRecord> steps;
  for (std::int64_t n = from; n <= to; ++n) {
    const auto bits = static_cast<std::uint64_t>(n);
    const double value = 1 / static_cast<double>(n);
    steps.push_back({n, bits, bits + 1, 0.1, 2 + value, 3 + value, bits + 2, bits + 3});
  }
  return steps;
}

TEST(CompareTest, EqualRunsHaveNoDifference) {
  const Comparison same = compare(steps_of(1, 20), steps_of(1, 30));
  EXPECT_EQ(same.kind, DifferenceKind::none);
  EXPECT_EQ(same.steps, 20);
  EXPECT_THAT(describe(same, "a", "b"), HasSubstr("no difference in the 20 steps from 1 to 20"));
  // A resumed run of an older version begins later.
  EXPECT_EQ(compare(steps_of(1, 20), steps_of(11, 30)).steps, 10);
  EXPECT_THAT(describe(compare(steps_of(1, 5), steps_of(6, 9)), "a", "b"), HasSubstr("no step in common"));
}

TEST(CompareTest, TheFirstDifferenceNamesTheCauseAndNotItsEffects) {
  const std::vector<std::pair<DifferenceKind, std::function<void(StepRecord&)>>> changes = {
      {DifferenceKind::data_order, [](StepRecord& r) { r.samples ^= 1; }},
      {DifferenceKind::augmentation, [](StepRecord& r) { r.pixels ^= 1; }},
      {DifferenceKind::schedule, [](StepRecord& r) { r.lr *= 2; }},
      {DifferenceKind::weights, [](StepRecord& r) { r.loss *= 1.01; }},
      {DifferenceKind::weights, [](StepRecord& r) { r.loss = std::nan(""); }},
      {DifferenceKind::rounding, [](StepRecord& r) { r.loss *= 1 + 1e-7; }},
      {DifferenceKind::gradient, [](StepRecord& r) { r.grad_norm *= 1.01; }},
      {DifferenceKind::rounding, [](StepRecord& r) { r.grad_norm *= 1 + 1e-7; }},
      {DifferenceKind::statistics, [](StepRecord& r) { r.statistics ^= 1; }},
      {DifferenceKind::update, [](StepRecord& r) { r.weights ^= 1; }}};
  const std::vector<StepRecord> a = steps_of(1, 20);
  for (std::size_t i = 0; i < changes.size(); ++i) {
    std::vector<StepRecord> b = a;
    // The change and everything that is computed after it, from step 8 on.
    for (std::size_t n = 7; n < b.size(); ++n) {
      changes[i].second(b[n]);
      b[n].weights ^= 2;
    }
    const Comparison found = compare(a, b);
    EXPECT_EQ(found.kind, changes[i].first) << i;
    EXPECT_EQ(found.step, 8) << i;
    EXPECT_THAT(describe(found, "a", "b"), HasSubstr(std::string("step 8: ") + difference_name(found.kind))) << i;
  }
}

// The first number of a step that an option changes, for each effect; what else an option may change comes later.
void change(StepRecord& step, OptionEffects effects) {
  using enum Effect;
  if (effects.has(samples)) {
    step.samples ^= 1;
  } else if (effects.has(pixels)) {
    step.pixels ^= 1;
  } else if (effects.has(rate)) {
    step.lr *= 2;
  } else if (effects.has(loss | weights)) {
    step.loss *= 1.01;
  } else if (effects.has(gradient)) {
    step.loss *= 1 + 1e-7;
    step.grad_norm *= 1.3;
  } else if (effects.has(rounding)) {
    step.loss *= 1 + 1e-7;
    step.grad_norm *= 1 + 1e-6;
  } else if (effects.has(statistics)) {
    step.statistics ^= 1;
  }
  step.weights ^= 1;
}

TEST(CompareTest, EveryOptionThatChangesAStepIsNamedAsTheCause) {
  for (const OptionSpec& spec : option_table()) {
    SCOPED_TRACE(spec.key);
    ASSERT_TRUE(spec.effects.has_value());
    const OptionEffects effects = *spec.effects;
    if (effects == OptionEffects(Effect::nothing) || effects == OptionEffects(Effect::evaluation)) continue;
    const std::string name = "--" + std::string(spec.key);
    // Something else that changes nothing must not be blamed.
    const ComparedOptions options = {.deterministic = true,
                                     .changed = {{"--workers", "1", "2", Effect::nothing}, {name, "A", "B", effects}}};
    const std::vector<StepRecord> a = steps_of(1, 5);
    std::vector<StepRecord> b = a;
    for (StepRecord& step : b) change(step, effects);
    const Comparison found = compare(a, b, options);
    const std::string text = describe(found, "a", "b");
    EXPECT_EQ(found.step, 1);
    EXPECT_THAT(text, HasSubstr(" because of " + name + " A and B\n"));
    EXPECT_THAT(text, testing::Not(HasSubstr("compare --")));
    const bool only_gradient = effects.has(Effect::gradient) && !effects.has(Effect::loss | Effect::weights);
    EXPECT_EQ(found.kind == DifferenceKind::gradient, only_gradient);
  }
}

TEST(CompareTest, WeightsThatAreNotHashedDifferAfterAnotherUpdate) {
  std::vector<StepRecord> b = steps_of(1, 5);
  for (std::size_t n = 2; n < b.size(); ++n) b[n].loss *= 1.01;
  const ComparedOptions options = {.changed = {{"--lr-for", "unset", "conv1.*=2", Effect::update}}};
  const Comparison found = compare(steps_of(1, 5), b, options);
  EXPECT_EQ(found.kind, DifferenceKind::weights);
  EXPECT_THAT(describe(found, "a", "b"), HasSubstr("because of --lr-for unset and conv1.*=2"));
}

TEST(CompareTest, InputsThatAreNoOptionsAreNamed) {
  std::vector<StepRecord> b = steps_of(1, 5);
  for (StepRecord& step : b) step.loss *= 1.01;
  const ComparedOptions shards = {.changed = {{"logical shards", "1", "2", kShardEffects}}};
  EXPECT_THAT(describe(compare(steps_of(1, 5), b, shards), "a", "b"), HasSubstr("because of 1 and 2 logical shards"));
  const ComparedOptions data = {.changed = {{"training pixels", "", "", kDataEffects}}};
  EXPECT_THAT(describe(compare(steps_of(1, 5), b, data), "a", "b"), HasSubstr("because of other training pixels"));
}

// Where the loss is the same up to rounding, a gradient norm that is not has another cause.
TEST(CompareTest, AGradientThatDiffersByMuchIsNoRounding) {
  std::vector<StepRecord> b = steps_of(1, 5);
  for (StepRecord& step : b) {
    step.loss *= 1 + 1e-7;
    step.grad_norm *= 1.3;
  }
  const Comparison found = compare(steps_of(1, 5), b);
  EXPECT_EQ(found.kind, DifferenceKind::gradient);
  EXPECT_THAT(describe(found, "a", "b"), HasSubstr("the loss is the same up to rounding"));
}

TEST(CompareTest, PixelsOnADeviceAreNotCompared) {
  std::vector<StepRecord> b = steps_of(1, 5);
  for (StepRecord& record : b) record.pixels = 0;
  EXPECT_EQ(compare(steps_of(1, 5), b).kind, DifferenceKind::none);
}

// The stages of a pipeline add the norm in another order, and have other weights to hash.
TEST(CompareTest, DividedNetworksHaveOtherHashesAndRoundedNorms) {
  const ComparedOptions divided = {.deterministic = true, .divided = true};
  std::vector<StepRecord> b = steps_of(1, 5);
  for (StepRecord& record : b) {
    record.grad_norm *= 1 + 1e-15;
    record.weights ^= 1;
    record.statistics ^= 1;
  }
  const Comparison same = compare(steps_of(1, 5), b, divided);
  EXPECT_EQ(same.kind, DifferenceKind::none);
  EXPECT_THAT(describe(same, "a", "b"), HasSubstr("gradient norms are compared up to rounding"));
  b[2].grad_norm *= 1.01;
  EXPECT_EQ(compare(steps_of(1, 5), b, divided).kind, DifferenceKind::gradient);
}

TEST(CompareTest, DeterministicRunsAreNotToldToBe) {
  std::vector<StepRecord> b = steps_of(1, 5);
  b[2].loss *= 1 + 1e-7;
  EXPECT_THAT(describe(compare(steps_of(1, 5), b), "a", "b"), HasSubstr("--deterministic fixes it"));
  EXPECT_THAT(describe(compare(steps_of(1, 5), b, {.deterministic = true}), "a", "b"),
              HasSubstr("as both runs have --deterministic"));
}

TEST(CompareTest, AnEvaluationMayDifferAlone) {
  RunHistory a;
  a.evaluations = {{10, 1, 0.5, 0.9}, {20, 2, 0.25, 0.95}};
  RunHistory b = a;
  const Comparison steps = compare(steps_of(1, 20), steps_of(1, 20));
  EXPECT_EQ(compare(steps, a, b).kind, DifferenceKind::none);
  b.evaluations[0].val_loss = 0.6;
  const Comparison found = compare(steps, a, b);
  EXPECT_EQ(found.kind, DifferenceKind::evaluation);
  EXPECT_EQ(found.step, 10);
  EXPECT_THAT(describe(found, "a", "b"), HasSubstr("0.5 and 0.6"));
}

TEST(ReadLogTest, WhatRunLogWritesIsReadBack) {
  const TemporaryFolder folder;
  const std::vector<StepRecord> steps = steps_of(1, 50);
  {
    RunLog log(folder.path(), {});
    for (const StepRecord& step : steps) log.write(step);
    TrainRecord record{.step = 50, .epoch = 1, .loss = 0.1, .grad_norm = 7, .mfu = 0.25};
    record.sampled = {20, {{}, {}}};
    record.sampled.ranks[1][Phase::backward] = 2;
    log.write(record);
    log.write(TrainRecord{.step = 50, .loss = std::nan("")});
    EvalRecord evaluation{.step = 50, .val_loss = 0.5};
    evaluation.confusion = {{3, 1}, {0, 4}};
    log.write(evaluation);
    File(folder.path() / "metrics.jsonl", File::Mode::append, ExitCode::internal).write("{\"step\":51,\"epo");
    File(folder.path() / "steps.csv", File::Mode::append, ExitCode::internal).write("nonsense\n51,00");
  }
  EXPECT_EQ(read_steps(folder.path()), steps);
  const RunHistory history = read_history(folder.path());
  ASSERT_EQ(history.training.size(), 2U);
  EXPECT_EQ(history.training[0].grad_norm, 7);
  EXPECT_EQ(history.training[0].mfu, 0.25);
  ASSERT_EQ(history.training[0].sampled.ranks.size(), 2U);
  EXPECT_EQ(history.training[0].sampled.ranks[1][Phase::backward], 2);
  EXPECT_TRUE(std::isnan(history.training[1].loss));
  ASSERT_EQ(history.evaluations.size(), 1U);
  EXPECT_EQ(history.evaluations[0].confusion, (std::vector<std::vector<std::int64_t>>{{3, 1}, {0, 4}}));
}

TEST(ReadLogTest, OtherFoldersAreOneLine) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { (void)read_steps(folder.path() / "none"); }),
              HasSubstr("no such folder"));
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { (void)read_steps(folder.path()); }), HasSubstr("no steps.csv"));
  replace_file(folder.path() / "steps.csv", "a,b\n1,2\n", ExitCode::internal);
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { (void)read_steps(folder.path()); }),
              HasSubstr("unexpected columns"));
}

}  // namespace
}  // namespace ddp
