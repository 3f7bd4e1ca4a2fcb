// Muon against its definition in double precision, for matrices of all shapes; its bits.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "support/newton_schulz.h"

namespace ddp {
namespace {

// The flat buffer is a matrix, a gap, and a vector that is updated as by SGD.
struct Case {
  std::size_t rows = 0;
  std::size_t columns = 0;
  UpdateSettings settings = {};
};
constexpr std::size_t kVector = 37;
constexpr double kRate = 0.1;
constexpr double kMatrixFactor = 2;

std::size_t vector_at(const Case& c) { return (c.rows * c.columns / 64 + 1) * 64; }

std::vector<ParameterSegment> segments_of(const Case& c, double last_step = kEveryStep) {
  const auto count = static_cast<std::int64_t>(c.rows * c.columns);
  ParameterSegment matrix{0, count, static_cast<float>(kMatrixFactor), 1, true, last_step};
  matrix.rows = static_cast<std::int64_t>(c.rows);
  return {matrix, {static_cast<std::int64_t>(vector_at(c)), kVector, 1, 0.5F}};
}

std::vector<float> random_values(const Case& c, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(vector_at(c) + kVector);
  for (float& value : values) value = normal(engine);
  std::fill(values.begin() + static_cast<std::ptrdiff_t>(c.rows * c.columns),
            values.begin() + static_cast<std::ptrdiff_t>(vector_at(c)), 0.0F);
  return values;
}

void update(Optimizer& optimizer, std::vector<float>& weights, const std::vector<float>& gradient, int step,
            double momentum, double skip = 0) {
  const StepControl control{kRate, momentum, static_cast<double>(step)};
  optimizer.update(weights.data(), gradient.data(), &control, &skip);
}

// Weights and their average after some steps.
struct Expected {
  std::vector<double> weights;
  std::vector<double> average;
};
Expected expected_after(const Case& c, int steps) {
  const UpdateSettings& s = c.settings;
  const std::vector<float> first = random_values(c, 1);
  Expected result{{first.begin(), first.end()}, {first.begin(), first.end()}};
  std::vector<double>& w = result.weights;
  std::vector<double> momentum(w.size());
  const std::size_t count = c.rows * c.columns;
  for (int step = 0; step < steps; ++step) {
    const std::vector<float> gradient = random_values(c, static_cast<std::uint32_t>(10 + step));
    std::vector<double> g(gradient.begin(), gradient.end());
    const double clip = s.clip_norm > 0 ? std::min(1.0, s.clip_norm / (norm(g) + 1e-6)) : 1;
    Matrix direction = zeros(c.rows, c.columns);
    for (std::size_t i = 0; i < count; ++i) {
      momentum[i] = s.muon_momentum * momentum[i] + clip * g[i];
      direction.values[i] = clip * g[i] + s.muon_momentum * momentum[i];
    }
    direction = orthogonal(direction, s.muon_steps);
    const auto rows = static_cast<double>(c.rows);
    const auto columns = static_cast<double>(c.columns);
    double factor = 1;
    if (s.muon_scale == MuonScale::shape) factor = std::sqrt(std::max(1.0, rows / columns));
    if (s.muon_scale == MuonScale::rms) factor = 0.2 * std::sqrt(std::max(rows, columns));
    const double scale =
        s.muon_normalizes
            ? std::sqrt(rows) / norm(std::vector<double>(w.begin(), w.begin() + static_cast<std::ptrdiff_t>(count)))
            : 1;
    for (std::size_t i = 0; i < count; ++i) {
      w[i] *= scale * (1 - kRate * kMatrixFactor * s.weight_decay);
      w[i] -= kRate * kMatrixFactor * factor * direction.values[i];
    }
    for (std::size_t i = vector_at(c); i < w.size(); ++i) {
      const double d = clip * g[i] + (s.decoupled ? 0 : 0.5 * s.weight_decay * w[i]);
      momentum[i] = s.momentum * momentum[i] + d;
      if (s.decoupled) w[i] *= 1 - kRate * 0.5 * s.weight_decay;
      w[i] -= kRate * (s.nesterov ? d + s.momentum * momentum[i] : momentum[i]);
    }
    for (std::size_t i = 0; i < w.size(); ++i) {
      result.average[i] = s.average_decay * result.average[i] + (1 - s.average_decay) * w[i];
    }
  }
  return result;
}

std::vector<Case> all_cases() {
  const UpdateSettings plain{.rule = UpdateRule::muon, .momentum = 0.9};
  UpdateSettings airbench{.rule = UpdateRule::muon, .momentum = 0.85, .nesterov = true, .weight_decay = 0.02};
  airbench.muon_momentum = 0.6;
  airbench.muon_steps = 3;
  airbench.muon_scale = MuonScale::none;
  airbench.muon_normalizes = true;
  UpdateSettings rms{.rule = UpdateRule::muon, .weight_decay = 0.1, .decoupled = true, .clip_norm = 2};
  rms.average_decay = 0.9;
  rms.muon_scale = MuonScale::rms;
  std::vector<Case> cases;
  for (const UpdateSettings& settings : {plain, airbench, rms}) {
    for (const auto& [rows, columns] : std::vector<std::pair<std::size_t, std::size_t>>{
             {1, 1}, {1, 40}, {40, 1}, {7, 5}, {24, 27}, {64, 216}, {130, 70}}) {
      cases.push_back({rows, columns, settings});
    }
  }
  return cases;
}

std::string described(const Case& c) { return std::to_string(c.rows) + " x " + std::to_string(c.columns); }

// Rounding errors of fp32 are multiplied by up to 3.4445 a step of the iteration.
TEST(Muon, FollowsItsDefinition) {
  const auto backend = make_cpu_backend();
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(described(c));
    Optimizer optimizer(*backend, segments_of(c), c.settings);
    std::vector<float> weights = random_values(c, 1);
    constexpr int kSteps = 3;
    for (int step = 1; step <= kSteps; ++step) {
      update(optimizer, weights, random_values(c, static_cast<std::uint32_t>(9 + step)), step, c.settings.momentum);
    }
    const Expected expected = expected_after(c, kSteps);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(weights[i]), expected.weights[i], 2e-5 * (1 + std::fabs(expected.weights[i])))
          << i;
      if (optimizer.average() == nullptr) continue;
      ASSERT_NEAR(static_cast<double>(optimizer.average()[i]), expected.average[i],
                  2e-5 * (1 + std::fabs(expected.average[i])))
          << i;
    }
  }
}

// With more steps the singular values of a step come close to 1, whatever those of the gradient are.
TEST(Muon, TakesStepsThatAreNearlyOrthogonal) {
  const auto backend = make_cpu_backend();
  UpdateSettings settings{.rule = UpdateRule::muon};
  settings.muon_steps = 10;
  const Case c{12, 50, settings};
  Optimizer optimizer(*backend, segments_of(c), settings);
  std::vector<float> weights(vector_at(c) + kVector);
  std::vector<float> gradient = random_values(c, 5);
  for (std::size_t i = 0; i < 3 * c.columns; ++i) gradient[i] *= 100;
  update(optimizer, weights, gradient, 1, 0);
  Matrix step = zeros(c.rows, c.columns);
  for (std::size_t i = 0; i < step.values.size(); ++i) {
    step.values[i] = static_cast<double>(weights[i]) / (kRate * kMatrixFactor);
  }
  const Matrix gram = product(step, transposed(step));
  for (std::size_t r = 0; r < c.rows; ++r) {
    // Gershgorin: the squares of the singular values are within these of the diagonal.
    double others = 0;
    for (std::size_t k = 0; k < c.rows; ++k) others += k == r ? 0 : std::fabs(gram.at(r, k));
    EXPECT_GT(gram.at(r, r), 0.4);
    EXPECT_LT(gram.at(r, r), 1.5);
    EXPECT_LT(others, 1);
  }
}

TEST(Muon, GivesTheSameBitsOnAnyNumberOfThreads) {
  const auto backend = make_cpu_backend();
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(described(c));
    std::vector<std::vector<float>> results;
    for (const int threads : {1, 2, 3}) {
      omp_set_num_threads(threads);
      Optimizer optimizer(*backend, segments_of(c), c.settings);
      std::vector<float> weights = random_values(c, 1);
      for (int step = 1; step <= 2; ++step) update(optimizer, weights, random_values(c, 20), step, c.settings.momentum);
      for (const OptimizerState& state : optimizer.state()) {
        weights.insert(weights.end(), state.values, state.values + optimizer.elements());
      }
      results.push_back(weights);
    }
    omp_set_num_threads(1);
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

TEST(Muon, SkipsStepsAndLeavesWhatIsNotTrained) {
  const auto backend = make_cpu_backend();
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(described(c));
    Optimizer optimizer(*backend, segments_of(c, /*last_step=*/1), c.settings);
    const std::vector<float> initial = random_values(c, 1);
    std::vector<float> weights = initial;
    update(optimizer, weights, random_values(c, 2), 1, 0, /*skip=*/1);
    EXPECT_EQ(weights, initial);
    update(optimizer, weights, random_values(c, 2), 1, 0);
    const std::vector<float> after_one = weights;
    update(optimizer, weights, random_values(c, 3), 2, 0);
    const auto end = static_cast<std::ptrdiff_t>(c.rows * c.columns);
    EXPECT_FALSE(std::equal(initial.begin(), initial.begin() + end, after_one.begin()));
    EXPECT_TRUE(std::equal(after_one.begin(), after_one.begin() + end, weights.begin()));
    EXPECT_FALSE(std::equal(after_one.begin() + end, after_one.end(), weights.begin() + end));
    const auto gap = static_cast<std::ptrdiff_t>(vector_at(c));
    EXPECT_TRUE(std::all_of(weights.begin() + end, weights.begin() + gap, [](float x) { return x == 0; }));
  }
}

// The step of a matrix is proportional to its rate, which falls to 0 over four updates.
TEST(Muon, FollowsARateOfItsOwn) {
  const auto backend = make_cpu_backend();
  const Case c{12, 50, {.rule = UpdateRule::muon}};
  std::vector<ParameterSegment> fading = segments_of(c, /*last_step=*/4);
  fading[0].fade_steps = 4;
  const std::vector<float> gradient = random_values(c, 5);
  const auto step_of = [&](const std::vector<ParameterSegment>& segments, double number, double lr) {
    Optimizer optimizer(*backend, segments, c.settings);
    std::vector<float> weights(gradient.size());
    const StepControl control{lr, 0, number, /*full_lr=*/kRate};
    const double skip = 0;
    optimizer.update(weights.data(), gradient.data(), &control, &skip);
    weights.resize(c.rows * c.columns);
    return weights;
  };
  EXPECT_EQ(step_of(fading, 1, 7), step_of(segments_of(c), 1, kRate));
  EXPECT_EQ(step_of(fading, 4, 7), step_of(segments_of(c), 4, kRate / 4));
  EXPECT_EQ(step_of(fading, 5, 7)[0], 0.0F);
}

// No gradient, no step; weights of 0 have no norm to be scaled.
TEST(Muon, OfZerosIsFinite) {
  const auto backend = make_cpu_backend();
  for (const Case& c : all_cases()) {
    Optimizer optimizer(*backend, segments_of(c), c.settings);
    std::vector<float> weights(vector_at(c) + kVector);
    update(optimizer, weights, std::vector<float>(weights.size()), 1, 0);
    EXPECT_TRUE(std::all_of(weights.begin(), weights.end(), [](float x) { return x == 0; })) << described(c);
  }
}

}  // namespace
}  // namespace ddp
