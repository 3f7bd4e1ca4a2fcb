// Synchronized batch normalisation of several shards, each in a thread of its own, is that of all their samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "backend/device_values.h"
#include "backend/op_check.h"

namespace ddp {
namespace {

using reference::Values;

constexpr std::int64_t kShardBatch = 20;
constexpr std::array<std::int64_t, 3> kActive = {18, 0, 5};

// Adds the values of all threads.
class Exchange {
 public:
  void sum(std::span<double> values) {
    {
      const std::scoped_lock lock(mutex_);
      total_.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) total_[i] += values[i];
    }
    all_.arrive_and_wait();
    std::copy(total_.begin(), total_.end(), values.begin());
    all_.arrive_and_wait();
    {
      const std::scoped_lock lock(mutex_);
      total_.clear();
    }
    all_.arrive_and_wait();
  }

 private:
  std::mutex mutex_;
  std::vector<double> total_;
  std::barrier<> all_{static_cast<std::ptrdiff_t>(kActive.size())};
};

struct Shard {
  Values y, dx, dx2, statistics, weight_gradient, bias_gradient;
};

// The values of some samples.
Values part_of(const Values& all, std::int64_t first, std::int64_t count, std::int64_t elements) {
  return {all.begin() + first * elements, all.begin() + (first + count) * elements};
}

struct Problem {
  BatchNormSpec spec;  // of a shard
  reference::Inputs in;
  Values dy;
};

Problem random_problem(Activation activation, bool add, const Shape& shape) {
  std::int64_t samples = 0;
  for (const std::int64_t active : kActive) samples += active;
  Problem p;
  p.spec = {.batch = kShardBatch, .shape = shape, .activation = activation, .add = add, .synchronized = true};
  const std::int64_t count = samples * shape.elements();
  p.in.x() = random_values(count);
  if (add) p.in.inputs.push_back(random_values(count));
  p.in.parameters = {random_values(shape.channels), random_values(shape.channels), {}};
  p.in.statistics = random_values(2 * shape.channels);
  for (std::size_t i = p.in.statistics.size() / 2; i < p.in.statistics.size(); ++i) p.in.statistics[i] += 2;
  p.dy = random_values(count);
  return p;
}

std::vector<float> floats_of(const Values& values) { return {values.begin(), values.end()}; }

Shard run_shard(Backend& backend, const Problem& p, Layout layout, std::int64_t first, std::int64_t active,
                const SumOverShards& sums) {
  const BatchNormSpec& s = p.spec;
  const std::int64_t elements = s.shape.elements();
  const auto op = backend.ops().make_op(s, layout, layout, "");
  const auto activation = [&](const Values& all) {
    DeviceActivation values(backend, s.batch, s.shape, layout);
    values.set(
        all.empty() ? Values(static_cast<std::size_t>(active * elements)) : part_of(all, first, active, elements),
        active);
    return values;
  };
  const DeviceActivation x = activation(p.in.x());
  const DeviceActivation x2 = activation(s.add ? p.in.inputs[1] : Values());
  const DeviceActivation dy = activation(p.dy);
  const DeviceActivation y(backend, s.batch, s.shape, layout);
  const DeviceActivation dx(backend, s.batch, s.shape, layout);
  const DeviceActivation dx2(backend, s.batch, s.shape, layout);
  const DeviceArray<float> weight(backend, floats_of(p.in.parameters.weight));
  const DeviceArray<float> bias(backend, floats_of(p.in.parameters.bias));
  const DeviceArray<float> weight_gradient(backend, floats_of(p.in.parameters.weight));
  const DeviceArray<float> bias_gradient(backend, floats_of(p.in.parameters.bias));
  const DeviceArray<float> statistics(backend, floats_of(p.in.statistics));
  const DeviceArray<std::byte> saved(backend, std::vector<std::byte>(op->traits().saved_bytes + 1));
  const DeviceArray<std::byte> workspace(backend,
                                         std::vector<std::byte>(op->traits().workspace_bytes + 1, std::byte{0x7F}));
  op->forward({.inputs = {x.data(), s.add ? x2.data() : nullptr},
               .y = y.data(),
               .parameters = {weight.data(), bias.data()},
               .saved = saved.data(),
               .workspace = workspace.data(),
               .active = active,
               .statistics = statistics.data(),
               .sums = &sums});
  op->backward({.inputs = {x.data(), s.add ? x2.data() : nullptr},
                .y = y.data(),
                .dy = dy.data(),
                .input_gradients = {dx.data(), s.add ? dx2.data() : nullptr},
                .parameters = {weight.data(), bias.data()},
                .parameter_gradients = {weight_gradient.data(), bias_gradient.data()},
                .saved = saved.data(),
                .workspace = workspace.data(),
                .active = active,
                .sums = &sums});
  const auto doubles = [](const std::vector<float>& values) { return Values(values.begin(), values.end()); };
  EXPECT_TRUE(dx.zero_from(active));
  return {y.get(active),
          dx.get(active),
          s.add ? dx2.get(active) : Values(),
          doubles(statistics.get()),
          doubles(weight_gradient.get()),
          doubles(bias_gradient.get())};
}

std::vector<Shard> run_shards(const Problem& p, Layout layout) {
  Exchange exchange;
  const SumOverShards sums = [&](std::span<double> values) { exchange.sum(values); };
  std::vector<Shard> shards(kActive.size());
  std::vector<std::jthread> threads;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < kActive.size(); ++i) {
    threads.emplace_back([&, i, first] {
      const std::unique_ptr<Backend> backend = make_cpu_backend(Precision::fp32);
      shards[i] = run_shard(*backend, p, layout, first, kActive.at(i), sums);
    });
    first += kActive.at(i);
  }
  threads.clear();
  return shards;
}

void append(Values& all, const Values& more) { all.insert(all.end(), more.begin(), more.end()); }

// Sums of some hundred products of about 1 in fp32.
void expect_near(const Values& actual, const Values& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 2e-5) << what << " at " << i;
}

TEST(SyncBatchNorm, OfSeveralShardsIsThatOfAllSamples) {
  for (const Layout layout : {Layout::plain, Layout::nhwc, Layout::lanes16}) {
    for (const auto& [activation, add, shape] :
         {std::tuple(Activation::none, false, Shape{5, 3, 4}), std::tuple(Activation::relu, true, Shape{17, 2, 2}),
          std::tuple(Activation::none, true, Shape{9, 1, 1})}) {
      Problem p = random_problem(activation, add, shape);
      BatchNormSpec whole = p.spec;
      whole.batch = kActive[0] + kActive[1] + kActive[2];
      const std::vector<bool> kinks = reference::near_kinks(whole, p.in, 1e-4);
      for (std::size_t i = 0; i < kinks.size(); ++i) {
        if (kinks[i]) p.dy[i] = 0;
      }
      const reference::Outputs expected = reference::forward(whole, p.in);
      const reference::Gradients gradients = reference::backward(whole, p.in, p.dy);
      const std::vector<Shard> shards = run_shards(p, layout);
      const std::string what = std::string(to_string(layout)) + " " + std::to_string(shape.channels) + " channels, ";
      Shard all;
      for (const Shard& shard : shards) {
        append(all.y, shard.y);
        append(all.dx, shard.dx);
        append(all.dx2, shard.dx2);
        expect_near(shard.statistics, expected.statistics, what + "running statistics");
        EXPECT_EQ(shard.statistics, shards[0].statistics) << what;
        all.weight_gradient.resize(shard.weight_gradient.size());
        all.bias_gradient.resize(shard.bias_gradient.size());
        for (std::size_t c = 0; c < shard.weight_gradient.size(); ++c) {
          all.weight_gradient[c] += shard.weight_gradient[c];
          all.bias_gradient[c] += shard.bias_gradient[c];
        }
      }
      expect_near(all.y, expected.y, what + "y");
      expect_near(all.dx, gradients.dx(), what + "dx");
      if (add) expect_near(all.dx2, gradients.inputs[1], what + "dx2");
      expect_near(all.weight_gradient, gradients.parameters.weight, what + "the weight's gradient");
      expect_near(all.bias_gradient, gradients.parameters.bias, what + "the bias's gradient");
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace ddp
