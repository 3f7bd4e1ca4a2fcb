#include "train/evaluator.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>

#include "comm/threads.h"
#include "support/golden_lenet.h"
#include "training_rig.h"

namespace ddp {
namespace {

class GoldenDataset final : public Dataset {
 public:
  explicit GoldenDataset(std::int64_t size) : Dataset("golden", size, {1, 28, 28}, 10) {}
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    for (std::uint32_t p = 0; p < 784; ++p) pixels[p] = golden::pixel(static_cast<std::uint32_t>(index), p);
    return index;
  }
  int label(std::int64_t index) const override { return golden::label(static_cast<std::uint32_t>(index)); }
};

// The counts by class, from the logits of each sample alone.
void check_classes(TrainingRig& rig, const EvalResult& result) {
  std::vector<std::vector<std::int64_t>> confusion(10, std::vector<std::int64_t>(10));
  std::int64_t in_top5 = 0;
  for (std::int64_t i = 0; i < 50; ++i) {
    const golden::Samples one(i, 1);
    double loss = 0;
    double correct = 0;
    rig.network.forward(Pass::evaluation, {rig.parameters.data()}, {one.pixels.data(), nullptr, one.labels.data(), 1},
                        {&loss, &correct, 0});
    std::vector<std::pair<float, int>> logits;  // negated, so that sorting puts the first of the largest first
    for (int c = 0; c < 10; ++c) {
      const auto at = element_offset({10, 1, 1}, rig.network.logits_layout(), 0, c, 0, 0);
      logits.emplace_back(-rig.network.logits().fp32()[at], c);
    }
    std::sort(logits.begin(), logits.end());
    const int label = golden::label(static_cast<std::uint32_t>(i));
    confusion[static_cast<std::size_t>(label)][static_cast<std::size_t>(logits[0].second)] += 1;
    in_top5 += std::any_of(logits.begin(), logits.begin() + 5, [&](const auto& each) { return each.second == label; });
  }
  EXPECT_EQ(result.classes.confusion, confusion);
  EXPECT_EQ(result.classes.in_top5, in_top5);
  EXPECT_DOUBLE_EQ(result.classes.top5_accuracy(), static_cast<double>(in_top5) / 50);
  double weighted = 0;
  for (std::size_t c = 0; c < 10; ++c) {
    if (result.classes.of_class[c] == 0) continue;
    weighted += result.classes.class_accuracy()[c] * static_cast<double>(result.classes.of_class[c]);
  }
  EXPECT_NEAR(weighted / 50, result.accuracy, 1e-12);
}

// 50 samples in chunks of up to 16: the last chunk is partial and must be counted exactly.
TEST(Evaluator, CountsEverySampleOnceWhereverItRuns) {
  EvalResult expected;
  for (const int ranks : {1, 2, 3}) {
    for (const EvalOn where : {EvalOn::rank0, EvalOn::all}) {
      run_as_threads(ranks, [&](Communicator& communicator) {
        omp_set_num_threads(1);
        const GoldenDataset data(50);
        TrainingRig rig(communicator, {.global_batch = 16 * communicator.size()});
        Evaluator evaluator(*rig.backend, rig.network, data, nullptr, communicator, where, {});
        const EvalResult result = evaluator.run({rig.parameters.data()});
        if (communicator.size() == 1 && where == EvalOn::rank0) {
          expected = result;
          // The expected result, sample by sample.
          double loss = 0;
          double correct = 0;
          for (std::int64_t i = 0; i < 50; ++i) {
            const golden::Samples one(i, 1);
            double of_one = 0;
            rig.network.forward(Pass::evaluation, {rig.parameters.data()},
                                {one.pixels.data(), nullptr, one.labels.data(), 1}, {&of_one, &correct, 0});
            loss += of_one;
          }
          EXPECT_NEAR(result.loss, loss / 50, 1e-6);
          EXPECT_DOUBLE_EQ(result.accuracy, correct / 50);
          check_classes(rig, result);
        }
        EXPECT_EQ(result.samples, 50);
        EXPECT_EQ(result.loss, expected.loss);
        EXPECT_EQ(result.accuracy, expected.accuracy);
        EXPECT_EQ(result.classes.confusion, expected.classes.confusion);
        EXPECT_EQ(result.classes.in_top5, expected.classes.in_top5);
        EXPECT_EQ(evaluator.run({rig.parameters.data()}).loss, expected.loss);  // repeatable
        const ResidentImages images(rig.backend->queue(), data);
        EXPECT_EQ(images.bytes(), 50U * 784U);
        Evaluator resident(*rig.backend, rig.network, data, &images, communicator, where, {});
        EXPECT_EQ(resident.run({rig.parameters.data()}).loss, expected.loss);
      });
    }
  }
}

// A request on any rank ends the evaluation on all ranks before the next chunk; the next evaluation is complete again.
TEST(Evaluator, EndsWithoutAResultWhereARankIsToStop) {
  for (const EvalOn where : {EvalOn::rank0, EvalOn::all}) {
    run_as_threads(2, [&](Communicator& communicator) {
      omp_set_num_threads(1);
      const GoldenDataset data(50);
      TrainingRig rig(communicator, {.global_batch = 16 * communicator.size()});
      Evaluator evaluator(*rig.backend, rig.network, data, nullptr, communicator, where, {});
      const EvalResult whole = evaluator.run({rig.parameters.data()});
      int asked = 0;
      const auto stops = [&] { return communicator.rank() == 0 && ++asked == 2; };
      EXPECT_FALSE(evaluator.run_unless({rig.parameters.data()}, stops).has_value());
      EXPECT_EQ(asked, communicator.rank() == 0 ? 2 : 0);
      EXPECT_EQ(evaluator.run({rig.parameters.data()}).loss, whole.loss);
    });
  }
}

}  // namespace
}  // namespace ddp
