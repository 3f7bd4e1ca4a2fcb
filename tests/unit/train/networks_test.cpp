// Deeper networks against PyTorch, step by step; see tests/golden/make_networks.py for the computation.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/transport/self.h"
#include "model/network.h"
#include "model/zoo.h"
#include "optim/optimizer.h"
#include "support/golden_lenet.h"

namespace ddp {
namespace {

using golden::hash32;
using Json = nlohmann::json;

std::uint32_t fnv1a(const std::string& name) {
  std::uint32_t hash = 0x811C9DC5U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193U;
  return hash;
}

std::vector<float> initial_parameters(const Graph& graph, bool norm_weights) {
  std::vector<float> flat(static_cast<std::size_t>(graph.flat_elements()));
  for (const Parameter& p : graph.parameters()) {
    const std::uint32_t seed = fnv1a(p.name);
    for (std::int64_t k = 0; k < p.elements(); ++k) {
      const double u = static_cast<double>(hash32(seed + static_cast<std::uint32_t>(k)) >> 8U) * 0x1p-24 - 0.5;
      double value = 0.1 * u;
      if (p.fixed) {
        value = p.initial.scale;
      } else if (p.shape.size() > 1) {
        value = u * (2 * std::sqrt(6 / static_cast<double>(p.elements() / p.shape.front())));
      } else if (p.norm && !p.bias) {
        value = norm_weights ? 1 + 0.2 * u : 1;
      }
      flat[static_cast<std::size_t>(p.offset + k)] = static_cast<float>(value);
    }
  }
  return flat;
}

struct GoldenBatch {
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;
  std::vector<std::uint64_t> keys;

  GoldenBatch(std::uint32_t first, std::uint32_t count, const Shape& shape) {
    for (std::uint32_t i = first; i < first + count; ++i) {
      labels.push_back(golden::label(i));
      keys.push_back(hash32(i) + (static_cast<std::uint64_t>(hash32(i + 1)) << 32U));
      std::uint32_t place = 0;
      for (std::uint32_t c = 0; c < shape.channels; ++c) {
        for (std::uint32_t y = 0; y < shape.height; ++y) {
          for (std::uint32_t x = 0; x < shape.width; ++x) pixels.push_back(pixel(i, c, y, x, place++));
        }
      }
    }
  }

 private:
  std::uint8_t pixel(std::uint32_t i, std::uint32_t c, std::uint32_t y, std::uint32_t x, std::uint32_t place) const {
    const auto label = static_cast<std::uint32_t>(labels.back());
    const std::uint32_t pattern = hash32(0x20000000U + 4096 * label + 256 * c + 16 * (y / 4) + x / 4) >> 24U;
    const std::uint32_t noise = hash32(0x80000000U + 4096 * i + place) >> 24U;
    return static_cast<std::uint8_t>(pattern < 64 ? 128 + (noise >> 1U) : noise >> 3U);
  }
};

class Networks : public testing::TestWithParam<std::size_t> {};

TEST_P(Networks, FollowPyTorchForFiftySteps) {
  std::ifstream file(GOLDEN_DIR "/networks.json");
  const Json golden = Json::parse(file).at("runs").at(GetParam());
  const auto image = golden["image"].get<std::vector<std::int64_t>>();
  const Shape shape{image[0], image[1], image[2]};
  const auto batch = golden["batch"].get<std::int64_t>();
  const std::string model = golden["model"];
  // Without updates the losses would be far from these, so they can tell a wrong gradient from rounding.
  ASSERT_GT(golden["moved_by_updates"].get<double>(), 5e-3);

  const auto backend = make_cpu_backend();
  const Graph graph = make_model(model, shape, 10);
  std::vector<float> parameters = initial_parameters(graph, model != "mnist-slim" && model != "airbench94");
  std::vector<float> gradient(parameters.size());
  std::vector<float> statistics(static_cast<std::size_t>(graph.statistic_count()));
  for (const Statistic& s : graph.statistics()) {
    std::fill_n(statistics.begin() + s.offset, s.channels, s.initial);
  }
  const std::vector<float> scale(static_cast<std::size_t>(shape.channels), 1.0F / 255.0F);
  const std::vector<float> shift(scale.size(), 0.0F);
  Network network(*backend, graph, {.batch = batch, .image = shape, .scale = scale, .shift = shift},
                  plan_layouts(*backend, make_stages(graph, batch), ChoiceMode::fixed));
  std::vector<ParameterSegment> segments;
  for (const Parameter& p : graph.parameters()) segments.push_back({p.offset, p.elements(), p.lr_scale, p.decay_scale});
  Optimizer optimizer(*backend, segments, {.momentum = golden["momentum"]});
  const double lr = golden["lr"];
  const double momentum = golden["momentum"];
  const double never = 0;
  double worst = 0;
  for (std::int64_t step = 0; step < golden["steps"]; ++step) {
    const GoldenBatch data(static_cast<std::uint32_t>(step * batch), static_cast<std::uint32_t>(batch), shape);
    double loss = 0;
    double correct = 0;
    network.forward(
        Pass::training, {parameters.data(), statistics.data()},
        {.pixels = data.pixels.data(), .labels = data.labels.data(), .count = batch, .keys = data.keys.data()},
        {&loss, &correct, 1.0F / static_cast<float>(batch)});
    network.backward(parameters.data(), gradient.data(), [](std::int64_t) {});
    const StepControl control{lr, momentum, static_cast<double>(step + 1)};
    optimizer.update(parameters.data(), gradient.data(), &control, &never);
    const double expected = golden["loss_float64"][static_cast<std::size_t>(step)];
    worst = std::max(worst, std::abs(loss / static_cast<double>(batch) - expected) / expected);
    ASSERT_LT(worst, 1e-3) << model << " at step " << step;
  }
  RecordProperty("worst_difference", fmt::format("{:.1e}", worst));
  for (const Statistic& s : graph.statistics()) {
    if (!golden["sums_of_running_statistics"].contains(s.name)) continue;
    double sum = 0;
    double size = 0;
    for (std::int64_t c = 0; c < s.channels; ++c) {
      const auto value = static_cast<double>(statistics[static_cast<std::size_t>(s.offset + c)]);
      sum += value;
      size += std::abs(value);
    }
    EXPECT_NEAR(sum, golden["sums_of_running_statistics"][s.name].get<double>(), 1e-3 * size) << s.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Networks, testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace ddp
