#include "train/evaluation/evaluator.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "comm/transport/threads.h"
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
        const ResidentImages images(rig.backend->device(), data);
        EXPECT_EQ(images.bytes(), 50U * 784U);
        Evaluator resident(*rig.backend, rig.network, data, &images, communicator, where, {});
        EXPECT_EQ(resident.run({rig.parameters.data()}).loss, expected.loss);
      });
    }
  }
}

// The logits of all views of a sample, weighted, from the network alone.
std::vector<double> mean_logits(TrainingRig& rig, const GoldenDataset& data, std::int64_t index,
                                const std::vector<EvalView>& views) {
  std::vector<double> mean(10);
  for (const EvalView& view : views) {
    std::vector<std::uint8_t> pixels(784);
    data.read(index, pixels);
    std::vector<std::uint8_t> shown(784);
    for (std::int64_t y = 0; y < 28; ++y) {
      for (std::int64_t x = 0; x < 28; ++x) {
        // Reflected without repeating the edge.
        const auto inside = [](std::int64_t at) { return at < 0 ? -at : at > 27 ? 54 - at : at; };
        const std::int64_t from = inside(y - view.shift) * 28 + inside((view.mirrored ? 27 - x : x) - view.shift);
        shown[static_cast<std::size_t>(y * 28 + x)] = pixels[static_cast<std::size_t>(from)];
      }
    }
    const std::int32_t label = 0;
    double loss = 0;
    double correct = 0;
    rig.network.forward(Pass::evaluation, {rig.parameters.data()}, {shown.data(), nullptr, &label, 1},
                        {&loss, &correct, 0});
    for (int c = 0; c < 10; ++c) {
      const auto at = element_offset({10, 1, 1}, rig.network.logits_layout(), 0, c, 0, 0);
      mean[static_cast<std::size_t>(c)] +=
          static_cast<double>(view.weight) * static_cast<double>(rig.network.logits().fp32()[at]);
    }
  }
  return mean;
}

TEST(Evaluator, AveragesTheLogitsOfViews) {
  std::vector<double> losses;
  for (const EvalViews which : {EvalViews::plain, EvalViews::mirror, EvalViews::mirror_shift}) {
    const std::vector<EvalView> views = eval_views(which, {1, 28, 28});
    EXPECT_EQ(views.size(), which == EvalViews::plain ? 1U : which == EvalViews::mirror ? 2U : 6U);
    double weights = 0;
    for (const EvalView& view : views) weights += static_cast<double>(view.weight);
    EXPECT_EQ(weights, 1);
    for (const int ranks : {1, 2}) {
      run_as_threads(ranks, [&](Communicator& communicator) {
        omp_set_num_threads(1);
        const GoldenDataset data(50);
        TrainingRig rig(communicator, {.global_batch = 16 * communicator.size()});
        Evaluator evaluator(*rig.backend, rig.network, data, nullptr, communicator, EvalOn::all, {}, which);
        const EvalResult result = evaluator.run({rig.parameters.data()});
        EXPECT_EQ(evaluator.run({rig.parameters.data()}).loss, result.loss);
        double loss = 0;
        std::int64_t correct = 0;
        for (std::int64_t i = 0; i < 50; ++i) {
          const std::vector<double> logits = mean_logits(rig, data, i, views);
          const auto label = static_cast<std::size_t>(data.label(i));
          double total = 0;
          for (const double logit : logits) total += std::exp(logit - logits[label]);
          loss += std::log(total);
          correct += std::max_element(logits.begin(), logits.end()) - logits.begin() == data.label(i) ? 1 : 0;
        }
        EXPECT_NEAR(result.loss, loss / 50, 1e-6 * result.loss);
        EXPECT_NEAR(result.accuracy, static_cast<double>(correct) / 50, 1e-12);
        EXPECT_EQ(result.classes.samples, 50);
        if (communicator.rank() == 0 && ranks == 1) losses.push_back(result.loss);
      });
    }
  }
  ASSERT_EQ(losses.size(), 3U);
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_NE(losses[1], losses[2]);
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
