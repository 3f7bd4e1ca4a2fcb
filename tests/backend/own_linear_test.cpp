// Which linear layers our own kernels take, and the loss that they compute with the last one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/linear/linear_mma.h"
#include "backend/device_values.h"
#include "backend/op_check.h"
#include "base/error.h"
#include "stand_ins/cuda/runtime.h"

namespace ddp {
namespace {

TEST(StandInMmaLinear, IsTheFixedChoiceForSmallLayers) {
  const LinearSpec small{.batch = 256, .inputs = 800, .outputs = 500, .relu = true, .image = {50, 4, 4}};
  const LinearSpec large{.batch = 256, .inputs = 25088, .outputs = 4096, .relu = true, .image = {512, 7, 7}};
  const auto bf16 = make_cuda_backend({.precision = Precision::bf16, .deterministic = true});
  const auto fp32 = make_cuda_backend({.deterministic = true});
  for (const Layout layout : {Layout::plain, Layout::nhwc}) {
    ASSERT_TRUE(bf16->ops().supports(small, layout, layout));
    EXPECT_EQ(bf16->chooser().choose(small, layout, layout, ChoiceMode::fixed).kernels, "mma");
  }
  EXPECT_EQ(bf16->chooser().choose(large, Layout::plain, Layout::plain, ChoiceMode::fixed).kernels, "");
  EXPECT_FALSE(bf16->ops().supports(large, Layout::nhwc, Layout::nhwc));
  EXPECT_EQ(fp32->chooser().choose(small, Layout::plain, Layout::plain, ChoiceMode::fixed).kernels, "");
  EXPECT_FALSE(fp32->ops().supports(small, Layout::nhwc, Layout::nhwc));
  // By timing.
  EXPECT_TRUE(make_cuda_backend({})->ops().supports(small, Layout::nhwc, Layout::nhwc));
  const LinearSpec larger{.batch = 1 << 20, .inputs = 800, .outputs = 500};
  EXPECT_THROW(static_cast<void>(fp32->ops().make_op(larger, Layout::plain, Layout::plain, "mma")), Error);
}

struct LossProblem {
  LinearSpec layer;
  std::int64_t active = 0;
  float smoothing = 0;
  bool mixed = false;
};

// The logits are those that the layer has stored; the loss is defined in double.
void check_loss(const LossProblem& problem, Precision precision) {
  const auto backend = make_cuda_backend({.precision = precision});
  const LinearSpec& s = problem.layer;
  const auto op = backend->ops().make_op(s, Layout::plain, Layout::plain, "mma");
  DeviceActivation x(*backend, s.batch, {s.inputs, 1, 1}, Layout::plain);
  DeviceActivation y(*backend, s.batch, {s.outputs, 1, 1}, Layout::plain);
  DeviceActivation gradient(*backend, s.batch, {s.outputs, 1, 1}, Layout::plain);
  x.set(random_values(s.batch * s.inputs), s.batch);
  gradient.fill(99);
  const DeviceArray<float> weights(*backend, random_floats(s.inputs * s.outputs));
  const DeviceArray<float> bias(*backend, random_floats(s.outputs));
  std::vector<std::int32_t> labels, others;
  std::vector<float> shares;
  for (std::int64_t n = 0; n < s.batch; ++n) {
    labels.push_back(static_cast<std::int32_t>(random_between(0, s.outputs - 1)));
    others.push_back(static_cast<std::int32_t>(random_between(0, s.outputs - 1)));
    shares.push_back(problem.mixed ? static_cast<float>(random_between(0, 256)) / 256.0F : 1.0F);
  }
  const DeviceArray<std::int32_t> first(*backend, labels);
  const DeviceArray<std::int32_t> second(*backend, others);
  const DeviceArray<float> weight_of_first(*backend, shares);
  const DeviceArray<double> results(*backend, {99, 3});
  const DeviceArray<std::uint8_t> saved(*backend, std::vector<std::uint8_t>(op->traits().saved_bytes, 0x7F));
  const DeviceArray<std::uint8_t> workspace(*backend, std::vector<std::uint8_t>(op->traits().workspace_bytes, 0x7F));
  const auto bytes = [](const DeviceArray<std::uint8_t>& memory) {
    return static_cast<std::byte*>(static_cast<void*>(memory.data()));
  };
  LossArguments loss{{s.batch, s.outputs, problem.smoothing},
                     first.data(),
                     gradient.data(),
                     0.25F,
                     results.data(),
                     results.data() + 1,
                     problem.mixed ? second.data() : nullptr,
                     problem.mixed ? weight_of_first.data() : nullptr};
  ForwardArguments a{.inputs = {x.data()}, .y = y.data(), .parameters = {weights.data(), bias.data()}};
  a.saved = bytes(saved);
  a.workspace = bytes(workspace);
  a.active = problem.active;
  a.loss = &loss;
  const std::size_t before = testing::enqueued("kernel");
  op->forward(a);
  EXPECT_EQ(testing::enqueued("kernel") - before, 2U) << "one packs the weights";
  ASSERT_TRUE(loss.done);

  const reference::Values logits = y.get(s.batch);
  const reference::Values slopes = gradient.get(s.batch);
  double total = 0;
  double right = 0;
  for (std::int64_t n = 0; n < s.batch; ++n) {
    const auto sample = static_cast<std::size_t>(n);
    const auto at = [&](std::int64_t c) { return static_cast<std::size_t>(n * s.outputs + c); };
    double sum = 0;
    std::int64_t best = 0;
    for (std::int64_t c = 0; c < s.outputs; ++c) {
      sum += std::exp(logits[at(c)]);
      best = logits[at(c)] > logits[at(best)] ? c : best;
    }
    const double share = shares[sample];
    for (std::int64_t c = 0; c < s.outputs; ++c) {
      double target = c == labels[sample] ? share : 0;
      if (c == others[sample]) target += 1 - share;
      target = target * (1 - static_cast<double>(problem.smoothing)) +
               static_cast<double>(problem.smoothing) / static_cast<double>(s.outputs);
      if (n < problem.active) total -= target * (logits[at(c)] - std::log(sum));
      const double expected = n < problem.active ? 0.25 * (std::exp(logits[at(c)]) / sum - target) : 0;
      ASSERT_NEAR(slopes[at(c)], expected, precision == Precision::bf16 ? 1e-3 : 1e-6)
          << "sample " << n << " class " << c;
    }
    const bool other = problem.mixed && shares[sample] < 0.5F;
    if (n < problem.active && best == (other ? others : labels)[sample]) ++right;
  }
  const std::vector<double> sums = results.get();
  EXPECT_NEAR(sums[0], total, 1e-5 * total + 1e-6);
  EXPECT_EQ(sums[1], 3 + right);
}

TEST(StandInMmaLinear, TheLossIsComputedWithTheLogits) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const float smoothing : {0.0F, 0.1F}) {
      for (const bool mixed : {false, true}) {
        check_loss({{.batch = 21, .inputs = 30, .outputs = 10}, 19, smoothing, mixed}, precision);
        check_loss({{.batch = 300, .inputs = 70, .outputs = 32}, 290, smoothing, mixed}, precision);
        check_loss({{.batch = 64, .inputs = 9, .outputs = 3}, 0, smoothing, mixed}, precision);
      }
    }
  }
}

TEST(StandInMmaLinear, ManyClassesAreLeftToAnotherKernel) {
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  const LinearSpec spec{.batch = 4, .inputs = 8, .outputs = 33};
  const auto op = backend->ops().make_op(spec, Layout::plain, Layout::plain, "mma");
  EXPECT_FALSE(op->traits().traffic->with_loss);
}

}  // namespace
}  // namespace ddp
