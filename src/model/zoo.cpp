#include "model/zoo.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace ddp {
namespace {

// LeNet as in "Dive into Deep Learning" (d2l.ai), chapter "Training on Multiple GPUs".
Graph lenet(const Shape& image, std::int64_t classes) {
  Graph graph(image);
  int x = graph.relu(graph.conv("conv1", graph.input(), {.channels = 20, .kernel = 3}));
  x = graph.average_pool(x, 2);
  x = graph.relu(graph.conv("conv2", x, {.channels = 50, .kernel = 5}));
  x = graph.average_pool(x, 2);
  x = graph.relu(graph.linear("fc1", graph.flatten(x), 128));
  graph.linear("fc2", x, classes);
  return graph;
}

using Maker = Graph (*)(const Shape&, std::int64_t);
constexpr std::array<std::pair<const char*, Maker>, 1> kModels = {{{"lenet", lenet}}};

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : kModels) names.emplace_back(name);
  return names;
}

void check_model_name(const std::string& name) {
  const std::vector<std::string> names = model_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  const std::string meant = nearest(name, names);
  throw Error(ExitCode::usage, fmt::format("--model {} is unknown{}; the models are: {}", name,
                                           meant.empty() ? "" : fmt::format(", did you mean {}?", meant), join(names)));
}

Graph make_model(const std::string& name, const Shape& image, std::int64_t classes) {
  check_model_name(name);
  const auto* known =
      std::find_if(kModels.begin(), kModels.end(), [&](const auto& entry) { return entry.first == name; });
  return known->second(image, classes);
}

}  // namespace ddp
