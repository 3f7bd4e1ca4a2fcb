#include "onnx/importer/order.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>

#include "base/error.h"

namespace ddp {
namespace {

// The producer of each value: a node index, or -1 for inputs and initializers.
std::map<std::string, int> producers_of(const OnnxModel& model) {
  std::map<std::string, int> producers;
  const auto add = [&](const std::string& name, int producer) {
    if (name.empty()) return;
    check(producers.emplace(name, producer).second, ExitCode::usage, "two nodes or inputs produce the value '{}'",
          name);
  };
  for (const OnnxValue& input : model.inputs) add(input.name, -1);
  for (const auto& [name, tensor] : model.initializers) add(name, -1);
  for (std::size_t i = 0; i < model.nodes.size(); ++i) {
    for (const std::string& output : model.nodes[i].outputs) add(output, static_cast<int>(i));
  }
  return producers;
}

}  // namespace

std::vector<const OnnxNode*> live_nodes(const OnnxModel& model, const std::string& output) {
  const std::map<std::string, int> producers = producers_of(model);
  const auto producer = [&](const std::string& value, const std::string& reader) {
    const auto found = producers.find(value);
    check(found != producers.end(), ExitCode::usage,
          "{} reads '{}', which no node computes and which is not an initializer", reader, value);
    return found->second;
  };
  // Backward traversal from the output.
  std::vector<bool> live(model.nodes.size(), false);
  std::vector<int> open = {producer(output, "the output")};
  std::vector<std::set<int>> readers(model.nodes.size());
  std::vector<int> waits_for(model.nodes.size(), 0);
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    if (node < 0 || live[static_cast<std::size_t>(node)]) continue;
    live[static_cast<std::size_t>(node)] = true;
    for (const std::string& input : model.nodes[static_cast<std::size_t>(node)].inputs) {
      if (input.empty()) continue;
      const int before = producer(input, "node '" + model.nodes[static_cast<std::size_t>(node)].name + "'");
      if (before < 0) continue;
      if (readers[static_cast<std::size_t>(before)].insert(node).second) ++waits_for[static_cast<std::size_t>(node)];
      open.push_back(before);
    }
  }
  // Topological sort (Kahn, 1962), choosing the earliest ready node of the file.
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (std::size_t i = 0; i < live.size(); ++i) {
    if (live[i] && waits_for[i] == 0) ready.push(static_cast<int>(i));
  }
  std::vector<const OnnxNode*> order;
  while (!ready.empty()) {
    const auto node = static_cast<std::size_t>(ready.top());
    ready.pop();
    order.push_back(&model.nodes[node]);
    for (const int reader : readers[node]) {
      if (--waits_for[static_cast<std::size_t>(reader)] == 0) ready.push(reader);
    }
  }
  const auto expected = static_cast<std::size_t>(std::count(live.begin(), live.end(), true));
  if (order.size() != expected) {
    for (std::size_t i = 0; i < live.size(); ++i) {
      check(!live[i] || waits_for[i] == 0, ExitCode::usage, "node '{}' ({}) is part of a cycle or depends on one",
            model.nodes[i].name, model.nodes[i].type);
    }
  }
  return order;
}

}  // namespace ddp
