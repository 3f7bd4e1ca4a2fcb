// A linear layer whose outputs are divided among several ranks, each in a thread of its own, is the whole layer.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backend/device_values.h"
#include "backend/op_check.h"
#include "support/errors.h"

// A namespace of its own, since the files of a test program may be compiled together.
namespace ddp::split_linear_tests {
namespace {

using reference::Values;

constexpr std::int64_t kShardBatch = 8;
constexpr std::array<std::int64_t, 3> kActive = {7, 0, 4};
constexpr std::int64_t kSamples = kActive[0] + kActive[1] + kActive[2];
constexpr auto kParts = static_cast<std::int64_t>(kActive.size());
constexpr float kUntouched = 99;

// Moves blocks between the threads.
class Blocks {
 public:
  void move(std::size_t part, std::span<const std::span<const float>> out, std::span<const std::span<float>> in) {
    sent_.at(part) = out;
    all_.arrive_and_wait();
    for (std::size_t p = 0; p < in.size(); ++p) {
      const std::span<const float> block = sent_.at(p)[part];
      EXPECT_EQ(block.size(), in[p].size());
      std::copy_n(block.begin(), std::min(block.size(), in[p].size()), in[p].begin());
    }
    all_.arrive_and_wait();
  }

 private:
  std::array<std::span<const std::span<const float>>, kActive.size()> sent_;
  std::barrier<> all_{kParts};
};

struct Problem {
  LinearSpec spec;  // of a shard
  Values x, weight, bias, dy;
};

Problem random_problem(const LinearSpec& spec) {
  Problem p{spec, random_values(kSamples * spec.inputs), random_values(spec.inputs * spec.outputs), {}, {}};
  if (spec.bias) p.bias = random_values(spec.outputs);
  p.dy = random_values(kSamples * spec.outputs);
  return p;
}

// The whole layer for all samples.
LinearSpec whole_of(const Problem& p) {
  LinearSpec whole = p.spec;
  whole.batch = kSamples;
  whole.parts = 1;
  return whole;
}

// Where rounding decides whether ReLU passes a gradient, there is none.
void avoid_kinks(Problem& p) {
  LinearSpec linear = whole_of(p);
  linear.relu = false;
  const Values before = reference::forward(linear, {.inputs = {p.x}, .parameters = {p.weight, p.bias}}).y;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (std::abs(before[i]) < 1e-4) p.dy[i] = 0;
  }
}

struct Shard {
  Values y, dx;
  std::vector<float> weight_gradient, bias_gradient;
};

std::vector<float> floats_of(const Values& values) { return {values.begin(), values.end()}; }

// `exchange` may be null.
Shard run_shard(Backend& backend, const Problem& p, const LinearSpec& spec, std::int64_t first, std::int64_t active,
                const ShardExchange* exchange) {
  const auto op = backend.ops().make_op(spec, Layout::plain, Layout::plain, "");
  const auto rows = [&](const Values& all, std::int64_t width, const Shape& shape) {
    DeviceActivation values(backend, spec.batch, shape, Layout::plain);
    values.set({all.begin() + first * width, all.begin() + (first + active) * width}, active);
    return values;
  };
  const DeviceActivation x = rows(p.x, spec.inputs, spec.input_shape());
  const DeviceActivation dy = rows(p.dy, spec.outputs, spec.output());
  const DeviceActivation y(backend, spec.batch, spec.output(), Layout::plain);
  DeviceActivation dx(backend, spec.batch, spec.input_shape(), Layout::plain);
  dx.fill(kUntouched);
  const DeviceArray<float> weight(backend, floats_of(p.weight));
  const std::size_t biases = std::max<std::size_t>(1, p.bias.size());
  const DeviceArray<float> bias(backend, p.bias.empty() ? std::vector<float>(1) : floats_of(p.bias));
  const DeviceArray<float> weight_gradient(backend, std::vector<float>(p.weight.size(), kUntouched));
  const DeviceArray<float> bias_gradient(backend, std::vector<float>(biases, kUntouched));
  const std::byte garbage{0x7F};
  const DeviceArray<std::byte> saved(backend, std::vector<std::byte>(op->traits().saved_bytes + 1, garbage));
  DeviceArray<std::byte> workspace(backend, std::vector<std::byte>(op->traits().workspace_bytes + 1, garbage));
  op->forward({.inputs = {x.data()},
               .y = y.data(),
               .parameters = {weight.data(), spec.bias ? bias.data() : nullptr},
               .saved = saved.data(),
               .workspace = workspace.data(),
               .active = active,
               .exchange = exchange});
  workspace.set(std::vector<std::byte>(op->traits().workspace_bytes + 1, garbage));
  op->backward({.inputs = {x.data()},
                .y = y.data(),
                .dy = dy.data(),
                .input_gradients = {dx.data()},
                .parameters = {weight.data(), spec.bias ? bias.data() : nullptr},
                .parameter_gradients = {weight_gradient.data(), spec.bias ? bias_gradient.data() : nullptr},
                .saved = saved.data(),
                .workspace = workspace.data(),
                .active = active,
                .exchange = exchange});
  if (spec.input_gradient) {
    EXPECT_TRUE(dx.zero_from(active));
  } else {
    for (const float value : dx.stored()) EXPECT_EQ(value, kUntouched);
  }
  return {y.get(active), dx.get(active), weight_gradient.get(), bias_gradient.get()};
}

std::vector<Shard> run_shards(const Problem& p) {
  Blocks blocks;
  std::vector<Shard> shards(kActive.size());
  std::vector<std::jthread> threads;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < kActive.size(); ++i) {
    threads.emplace_back([&, i, first] {
      const std::unique_ptr<Backend> backend = make_cpu_backend(Precision::fp32);
      const ShardExchange exchange{i,
                                   {kActive.begin(), kActive.end()},
                                   [&blocks, i](std::span<const std::span<const float>> out,
                                                std::span<const std::span<float>> in) { blocks.move(i, out, in); }};
      shards[i] = run_shard(*backend, p, p.spec, first, kActive.at(i), &exchange);
    });
    first += kActive.at(i);
  }
  threads.clear();
  return shards;
}

// Sums of some dozen products of at most 1 in fp32.
void expect_near(double actual, double expected, const std::string& what) {
  EXPECT_NEAR(actual, expected, 1e-5) << what;
}

// Each part of a parameter has written its own values only.
void expect_parts(const std::vector<Shard>& shards, const std::vector<float> Shard::*gradient, const Values& expected,
                  const std::string& what) {
  const std::size_t each = expected.size() / shards.size();
  for (std::size_t part = 0; part < shards.size(); ++part) {
    const std::vector<float>& found = shards[part].*gradient;
    ASSERT_EQ(found.size(), expected.size()) << what;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (i / each == part) {
        expect_near(static_cast<double>(found[i]), expected[i], what);
      } else {
        ASSERT_EQ(found[i], kUntouched) << what << " at " << i << " by part " << part;
      }
    }
  }
}

TEST(SplitLinear, OfSeveralRanksIsTheWholeLayer) {
  for (const bool bias : {true, false}) {
    for (const bool relu : {true, false}) {
      for (const bool input_gradient : {true, false}) {
        for (const std::int64_t outputs : {12, 3}) {
          Problem p = random_problem({.batch = kShardBatch,
                                      .inputs = 37,
                                      .outputs = outputs,
                                      .bias = bias,
                                      .relu = relu,
                                      .input_gradient = input_gradient,
                                      .parts = kParts});
          if (relu) avoid_kinks(p);
          const reference::Inputs in{.inputs = {p.x}, .parameters = {p.weight, p.bias}};
          const Values y = reference::forward(whole_of(p), in).y;
          const reference::Gradients gradients = reference::backward(whole_of(p), in, p.dy);
          const std::string what = describe(p.spec);
          const std::vector<Shard> shards = run_shards(p);
          Shard all;
          for (const Shard& shard : shards) {
            all.y.insert(all.y.end(), shard.y.begin(), shard.y.end());
            all.dx.insert(all.dx.end(), shard.dx.begin(), shard.dx.end());
          }
          ASSERT_EQ(all.y.size(), y.size());
          for (std::size_t i = 0; i < y.size(); ++i) expect_near(all.y[i], y[i], what + ", y");
          if (input_gradient) {
            ASSERT_EQ(all.dx.size(), gradients.dx().size());
            for (std::size_t i = 0; i < all.dx.size(); ++i) expect_near(all.dx[i], gradients.dx()[i], what + ", dx");
          }
          expect_parts(shards, &Shard::weight_gradient, gradients.parameters.weight, what + ", the weight's gradient");
          if (bias)
            expect_parts(shards, &Shard::bias_gradient, gradients.parameters.bias, what + ", the bias's gradient");
          if (HasFailure()) return;
        }
      }
    }
  }
}

// In evaluations, and when a step is traced.
TEST(SplitLinear, WithoutAnExchangeIsTheWholeLayerInItsBits) {
  const Problem p = random_problem({.batch = kSamples, .inputs = 20, .outputs = 9, .relu = true, .parts = kParts});
  const std::unique_ptr<Backend> backend = make_cpu_backend(Precision::fp32);
  const Shard divided = run_shard(*backend, p, p.spec, 0, kSamples, nullptr);
  const Shard whole = run_shard(*backend, p, whole_of(p), 0, kSamples, nullptr);
  EXPECT_EQ(divided.y, whole.y);
  EXPECT_EQ(divided.dx, whole.dx);
  EXPECT_EQ(divided.weight_gradient, whole.weight_gradient);
  EXPECT_EQ(divided.bias_gradient, whole.bias_gradient);
}

// The plan of a run whose layers are not divided may demand another layout.
TEST(SplitLinear, IsRefusedInOtherLayouts) {
  const std::unique_ptr<Backend> backend = make_cpu_backend(Precision::fp32);
  const LinearSpec spec{.batch = 4, .inputs = 5, .outputs = 6, .parts = 2};
  EXPECT_FALSE(backend->ops().supports(spec, Layout::lanes16, Layout::lanes16));
  const std::string refusal = error_text(
      ExitCode::preflight, [&] { (void)backend->ops().make_op(spec, Layout::lanes16, Layout::lanes16, ""); });
  EXPECT_NE(refusal.find("divided among the ranks"), std::string::npos) << refusal;
}

}  // namespace
}  // namespace ddp::split_linear_tests
