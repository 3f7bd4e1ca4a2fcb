// Computes the logits of a graph with the program's own network on the CPU; each input byte is scaled by 1/255.
//
//   std::vector<float> logits = forward_logits(graph, parameters, statistics, pixels, count);   // [count][classes]
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "model/layout_plan.h"
#include "model/network.h"
#include "model/stages.h"

namespace ddp {

inline std::vector<float> forward_logits(const Graph& graph, const std::vector<float>& parameters,
                                         std::vector<float> statistics, const std::vector<std::uint8_t>& pixels,
                                         std::int64_t count) {
  const std::unique_ptr<Backend> backend = make_cpu_backend();
  const Shape image = graph.shape(graph.input());
  NetworkConfig config;
  config.batch = count;
  config.image = image;
  config.scale.assign(static_cast<std::size_t>(image.channels), 1.0F / 255.0F);
  config.shift.assign(static_cast<std::size_t>(image.channels), 0.0F);
  Network network(*backend, graph, config, plan_layouts(*backend, make_stages(graph, count), ChoiceMode::fixed));
  const std::vector<std::int32_t> labels(static_cast<std::size_t>(count), 0);
  double loss = 0;
  double correct = 0;
  network.forward(Pass::evaluation, {parameters.data(), statistics.data()},
                  {pixels.data(), nullptr, labels.data(), count, nullptr}, {&loss, &correct, 1.0F});
  const std::int64_t classes = graph.classes();
  std::vector<float> logits;
  for (std::int64_t n = 0; n < count; ++n) {
    for (std::int64_t c = 0; c < classes; ++c) {
      const bool lanes = network.logits_layout() == Layout::lanes16;
      const std::int64_t at = lanes ? (n / kLanes * classes + c) * kLanes + n % kLanes : n * classes + c;
      logits.push_back(network.logits().fp32()[at]);
    }
  }
  return logits;
}

}  // namespace ddp
