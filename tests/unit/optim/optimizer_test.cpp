#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace ddp {
namespace {

// SGD in double precision, one parameter after the other, as torch.optim.SGD documents it.
struct ReferenceSgd {
  SgdConfig config;
  std::vector<double> velocity;
  bool first = true;

  void update(std::vector<double>& w, const std::vector<float>& gradient, double lr) {
    velocity.resize(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = static_cast<double>(gradient[i]) + config.weight_decay * w[i];
      velocity[i] = first ? g : config.momentum * velocity[i] + g;
      w[i] -= lr * (config.nesterov ? g + config.momentum * velocity[i] : velocity[i]);
    }
    first = false;
  }
};

TEST(Sgd, FollowsTheReference) {
  const auto backend = make_cpu_backend();
  std::mt19937_64 engine{std::random_device{}()};
  std::normal_distribution<float> normal;
  const std::vector<SgdConfig> configs = {{0, false, 0}, {0, false, 0.1}, {0.9, false, 0.01}, {0.9, true, 0.01}};
  for (const SgdConfig& config : configs) {
    std::vector<float> w(1003);
    for (float& value : w) value = normal(engine);
    std::vector<double> expected(w.begin(), w.end());
    Sgd sgd(*backend, static_cast<std::int64_t>(w.size()), config);
    ReferenceSgd reference{config, {}, true};
    for (int step = 0; step < 20; ++step) {
      std::vector<float> gradient(w.size());
      for (float& value : gradient) value = normal(engine);
      const double lr = 0.05;
      const double skip = 0;
      sgd.update(w.data(), gradient.data(), {&lr, &skip});
      reference.update(expected, gradient, 0.05);
    }
    // Twenty updates of rounding 6e-8 each on values below about 5.
    for (std::size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(static_cast<double>(w[i]), expected[i], 2e-5);
  }
}

TEST(Sgd, HasStateOnlyWithMomentum) {
  const auto backend = make_cpu_backend();
  EXPECT_TRUE(Sgd(*backend, 5, {.momentum = 0}).state().empty());
  EXPECT_EQ(Sgd(*backend, 5, {.momentum = 0}).bytes(), 0U);
  Sgd sgd(*backend, 5, {.momentum = 0.9});
  ASSERT_EQ(sgd.state().size(), 1U);
  EXPECT_EQ(sgd.state()[0].name, "momentum");
  EXPECT_EQ(sgd.bytes(), 5 * sizeof(float));
}

TEST(Sgd, SkipsWhereItIsTold) {
  const auto backend = make_cpu_backend();
  Sgd sgd(*backend, 3, {.momentum = 0.9, .weight_decay = 0.1});
  std::vector<float> w = {1, 2, 3};
  const std::vector<float> gradient = {1, 1, 1};
  const double lr = 0.5;
  for (const double skip : {1.0, 3.0, std::numeric_limits<double>::quiet_NaN()}) {
    sgd.update(w.data(), gradient.data(), {&lr, &skip});
    EXPECT_EQ(w, (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(sgd.state()[0].values[0], 0.0F);
  }
}

}  // namespace
}  // namespace ddp
