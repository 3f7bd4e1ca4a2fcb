// Optimizers and schedules against PyTorch's: tests/golden/optimizers.json, which make_optimizers.py beside it made.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "optim/schedule.h"

namespace ddp {
namespace {

const nlohmann::json& golden() {
  static const nlohmann::json file = nlohmann::json::parse(std::ifstream(GOLDEN_DIR "/optimizers.json"));
  return file;
}

UpdateSettings settings_of(const nlohmann::json& json) {
  const std::vector<std::string> rules = {"sgd", "adam", "rmsprop", "lars", "lamb"};
  const auto rule = std::find(rules.begin(), rules.end(), json["rule"].get<std::string>()) - rules.begin();
  UpdateSettings s;
  s.rule = static_cast<UpdateRule>(rule);
  s.momentum = json.value("momentum", s.momentum);
  s.nesterov = json.value("nesterov", s.nesterov);
  s.weight_decay = json.value("weight_decay", s.weight_decay);
  s.decoupled = json.value("decoupled", s.decoupled);
  s.beta1 = json.value("beta1", s.beta1);
  s.beta2 = json.value("beta2", s.beta2);
  s.epsilon = json.value("epsilon", s.epsilon);
  s.rho = json.value("rho", s.rho);
  s.keras = json.value("keras", s.keras);
  s.trust = json.value("trust", s.trust);
  s.clip_norm = json.value("clip_norm", s.clip_norm);
  s.clip_value = json.value("clip_value", s.clip_value);
  s.average_decay = json.value("average_decay", s.average_decay);
  s.average_warmup = json.value("average_warmup", s.average_warmup);
  return s;
}

std::vector<ParameterSegment> segments_of(const nlohmann::json& settings) {
  std::vector<ParameterSegment> segments;
  for (const auto& each : golden()["segments"]) {
    ParameterSegment segment{each[0], each[1]};
    const std::size_t i = segments.size();
    if (settings.contains("lr_scales")) segment.lr_scale = settings["lr_scales"][i];
    if (settings.contains("decay_scales")) segment.decay_scale = settings["decay_scales"][i];
    if (settings.contains("adapts")) segment.adapt = settings["adapts"][i];
    segments.push_back(segment);
  }
  return segments;
}

// Both sides begin with the same numbers of fp32; ours rounds to it in each of up to 20 updates.
void expect_near(const float* actual, const nlohmann::json& expected, const std::string& what) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double value = expected[i];
    EXPECT_NEAR(static_cast<double>(actual[i]), value, 1e-5 * (0.1 + std::fabs(value))) << what << ", weight " << i;
  }
}

TEST(Golden, OptimizersFollowPyTorch) {
  const auto backend = make_cpu_backend();
  ASSERT_GE(golden()["optimizers"].size(), 25U);
  for (const auto& run : golden()["optimizers"]) {
    const nlohmann::json& settings = run["settings"];
    Optimizer optimizer(*backend, segments_of(settings), settings_of(settings));
    std::vector<float> weights = golden()["initial"];
    for (std::size_t s = 0; s < golden()["gradients"].size(); ++s) {
      const std::vector<float> gradient = golden()["gradients"][s];
      const double lr = golden()["lr"][s];
      const double momentum = settings.value("cycles", false) ? golden()["momentum"][s].get<double>()
                                                              : settings_of(settings).own_momentum();
      const StepControl control{lr, momentum, static_cast<double>(s + 1)};
      const double skip = 0;
      optimizer.update(weights.data(), gradient.data(), &control, &skip);
      const std::string key = std::to_string(s + 1);
      const std::string what = settings.dump() + " after " + key;
      if (!run["weights"].contains(key)) continue;
      expect_near(weights.data(), run["weights"][key], what);
      if (optimizer.average() != nullptr) expect_near(optimizer.average(), run["average"].at(key), what + ", average");
    }
  }
}

ScheduleConfig config_of(const nlohmann::json& json) {
  constexpr auto kNames = enum_names(ScheduleKind{});
  const auto kind = std::find(kNames.begin(), kNames.end(), json["kind"].get<std::string>()) - kNames.begin();
  ScheduleConfig c;
  c.kind = static_cast<ScheduleKind>(kind);
  c.lr = json["lr"];
  c.steps_per_epoch = json["steps_per_epoch"];
  c.total_steps = json["total_steps"];
  c.lr_min = json.value("lr_min", c.lr_min);
  c.gamma = json.value("gamma", c.gamma);
  c.interval_steps = json.value("interval_steps", c.interval_steps);
  c.milestones = json.value("milestones", c.milestones);
  c.staircase = json.value("staircase", c.staircase);
  c.power = json.value("power", c.power);
  c.rise = json.value("rise", c.rise);
  c.div = json.value("div", c.div);
  c.final_div = json.value("final_div", c.final_div);
  c.high_momentum = json.value("high_momentum", c.high_momentum);
  c.low_momentum = json.value("low_momentum", c.low_momentum);
  c.by_epoch = json.value("by_epoch", c.by_epoch);
  c.warmup_steps = json.value("warmup_steps", c.warmup_steps);
  return c;
}

// Both in double precision; PyTorch's are partly products of one factor a step.
TEST(Golden, SchedulesFollowPyTorch) {
  ASSERT_GE(golden()["schedules"].size(), 17U);
  for (const auto& run : golden()["schedules"]) {
    const Schedule schedule(config_of(run["settings"]));
    for (std::size_t s = 0; s < run["lr"].size(); ++s) {
      const double expected = run["lr"][s];
      EXPECT_NEAR(schedule.lr(static_cast<std::int64_t>(s)), expected, 1e-12 + 1e-9 * expected)
          << run["settings"].dump() << " step " << s;
      EXPECT_NEAR(schedule.momentum(static_cast<std::int64_t>(s)), run["momentum"][s].get<double>(), 1e-12)
          << run["settings"].dump() << " step " << s;
    }
  }
}

}  // namespace
}  // namespace ddp
