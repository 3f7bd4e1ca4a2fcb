// Computes the logits or the gradient of a graph with the program's own network on the CPU; each input byte is scaled by
// 1/255.
//
//   std::vector<float> logits = forward_logits(graph, parameters, statistics, pixels, count);   // [count][classes]
//   std::vector<float> gradient = first_gradient(graph, parameters, statistics, pixels, labels);
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "model/layout_plan.h"
#include "model/network.h"
#include "model/stages.h"

namespace ddp {

inline NetworkConfig bytes_config(const Graph& graph, std::int64_t count) {
  const Shape image = graph.shape(graph.input());
  NetworkConfig config;
  config.batch = count;
  config.image = image;
  config.scale.assign(static_cast<std::size_t>(image.channels), 1.0F / 255.0F);
  config.shift.assign(static_cast<std::size_t>(image.channels), 0.0F);
  return config;
}

inline std::vector<float> forward_logits(const Graph& graph, const std::vector<float>& parameters,
                                         std::vector<float> statistics, const std::vector<std::uint8_t>& pixels,
                                         std::int64_t count) {
  const std::unique_ptr<Backend> backend = make_cpu_backend();
  Network network(*backend, graph, bytes_config(graph, count),
                  plan_layouts(*backend, make_stages(graph, count), ChoiceMode::fixed));
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

// The gradient of the mean loss in training, as a flat buffer.
inline std::vector<float> first_gradient(const Graph& graph, const std::vector<float>& parameters,
                                         std::vector<float> statistics, const std::vector<std::uint8_t>& pixels,
                                         const std::vector<std::int32_t>& labels) {
  const std::unique_ptr<Backend> backend = make_cpu_backend();
  const auto count = static_cast<std::int64_t>(labels.size());
  Network network(*backend, graph, bytes_config(graph, count),
                  plan_layouts(*backend, make_stages(graph, count), ChoiceMode::fixed));
  const std::vector<std::uint64_t> keys(labels.size());
  double loss = 0;
  double correct = 0;
  network.forward(Pass::training, {parameters.data(), statistics.data()},
                  {pixels.data(), nullptr, labels.data(), count, keys.data()},
                  {&loss, &correct, 1.0F / static_cast<float>(count)});
  std::vector<float> gradient(parameters.size());
  network.backward(parameters.data(), gradient.data(), [](std::int64_t /*offset*/) {});
  return gradient;
}

}  // namespace ddp
