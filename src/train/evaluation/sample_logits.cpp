#include "train/evaluation/sample_logits.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "backend/backend.h"
#include "base/random.h"
#include "model/layout_plan.h"
#include "model/network.h"
#include "model/stages.h"

namespace ddp {

std::vector<float> sample_logits(const Graph& graph, const WeightValues& weights, const PixelValues& pixels) {
  constexpr std::int64_t kImages = 3;
  constexpr std::uint64_t kSeed = 0x5a;
  const Shape& image = graph.shape(graph.input());
  const std::unique_ptr<Backend> backend = make_cpu_backend();
  NetworkConfig config;
  config.batch = kImages;
  config.image = image;
  config.scale = pixels.scale;
  config.shift = pixels.shift;
  Network network(*backend, graph, config, plan_layouts(*backend, make_stages(graph, kImages), ChoiceMode::fixed));
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(kImages * image.elements()));
  Random random(kSeed, 0, 0);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.uniform(0, 255.99F));
  const std::vector<std::int32_t> labels(kImages, 0);
  // An evaluation only reads them, but through the non-const pointer of training.
  std::vector<float> statistics(weights.statistics.begin(), weights.statistics.end());
  double loss = 0;
  double correct = 0;
  network.forward(Pass::evaluation, {weights.parameters.data(), statistics.data()},
                  {bytes.data(), nullptr, labels.data(), kImages}, {&loss, &correct, 0});
  const Shape row{graph.classes(), 1, 1};
  std::vector<float> logits;
  for (std::int64_t n = 0; n < kImages; ++n) {
    for (std::int64_t c = 0; c < graph.classes(); ++c) {
      logits.push_back(network.logits().fp32()[element_offset(row, network.logits_layout(), n, c, 0, 0)]);
    }
  }
  return logits;
}

double relative_difference(std::span<const float> found, std::span<const float> wanted) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  if (found.size() != wanted.size()) return kNever;
  double largest = 0;
  double apart = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!std::isfinite(found[i]) || !std::isfinite(wanted[i])) return kNever;
    largest = std::max(largest, std::abs(static_cast<double>(wanted[i])));
    apart = std::max(apart, std::abs(static_cast<double>(found[i]) - static_cast<double>(wanted[i])));
  }
  if (apart == 0) return 0;
  return largest > 0 ? apart / largest : kNever;
}

}  // namespace ddp
