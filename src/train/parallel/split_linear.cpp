#include "train/parallel/split_linear.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text/text.h"

namespace ddp {
namespace {

const Layer& layer_at(const Graph& graph, int layer) { return graph.layers()[static_cast<std::size_t>(layer)]; }

// Those whose weights are trained.
std::vector<int> linear_layers(const Graph& graph) {
  std::vector<int> layers;
  for (const Parameter& p : graph.parameters()) {
    const bool weight = !p.bias && !p.fixed;
    if (weight && std::holds_alternative<LinearLayer>(layer_at(graph, p.layer).kind)) layers.push_back(p.layer);
  }
  return layers;
}

std::vector<std::string> names_of(const Graph& graph, std::span<const int> layers) {
  std::vector<std::string> names;
  for (const int layer : layers) names.push_back(layer_at(graph, layer).name);
  return names;
}

std::vector<std::string> words_of(const std::string& patterns) {
  std::vector<std::string> words;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t comma = patterns.find(',', begin);
    words.push_back(patterns.substr(begin, comma == std::string::npos ? comma : comma - begin));
    if (comma == std::string::npos) return words;
    begin = comma + 1;
  }
}

// Whether backward computes no gradient of its input.
bool reads_images(const Graph& graph, int layer) {
  int from = layer_at(graph, layer).inputs.front();
  for (;;) {
    const auto* flatten = std::get_if<FlattenLayer>(&layer_at(graph, from).kind);
    if (flatten == nullptr || flatten->channels_last) return from == graph.input();
    from = layer_at(graph, from).inputs.front();
  }
}

}  // namespace

std::vector<int> layers_to_split(const Graph& graph, const std::string& patterns, int ranks) {
  const std::vector<int> all = linear_layers(graph);
  check(!all.empty(), ExitCode::usage, "--split-linear: the model has no linear layer; remove the option");
  std::vector<int> chosen;
  for (const std::string& pattern : words_of(patterns)) {
    bool found = false;
    for (const int layer : all) {
      if (!matches(pattern, layer_at(graph, layer).name)) continue;
      found = true;
      if (std::find(chosen.begin(), chosen.end(), layer) == chosen.end()) chosen.push_back(layer);
    }
    check(found, ExitCode::usage, "--split-linear: no linear layer of the model matches '{}'; there {} {}", pattern,
          all.size() == 1 ? "is" : "are", join(names_of(graph, all)));
  }
  for (const int layer : chosen) {
    const std::int64_t outputs = std::get<LinearLayer>(layer_at(graph, layer).kind).outputs;
    check(outputs % ranks == 0, ExitCode::usage,
          "--split-linear: {} ranks cannot have equal parts of the {} outputs of layer '{}'; choose other layers, or a "
          "number of ranks that divides {}",
          ranks, outputs, layer_at(graph, layer).name, outputs);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<int> divided_layers(const Graph& graph) {
  std::vector<int> layers;
  for (std::size_t layer = 0; layer < graph.layers().size(); ++layer) {
    const auto* linear = std::get_if<LinearLayer>(&graph.layers()[layer].kind);
    if (linear != nullptr && linear->parts > 1) layers.push_back(static_cast<int>(layer));
  }
  return layers;
}

ParameterSlices::ParameterSlices(const Graph& graph, std::span<const int> layers, int ranks, int rank)
    : layers_(layers.begin(), layers.end()), ranks_(ranks), rank_(rank) {
  const std::vector<Parameter>& parameters = graph.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    if (std::find(layers.begin(), layers.end(), p.layer) == layers.end()) continue;
    DDP_ASSERT(p.elements() % ranks == 0);
    divided_.push_back({i, {p.offset, p.offset + p.flat_elements()}, p.elements() / ranks, p.bias});
  }
  if (!any()) return;
  is_divided_.resize(parameters.size());
  for (const Divided& each : divided_) is_divided_[each.parameter] = true;
}

std::vector<Range> ParameterSlices::whole() const {
  std::vector<Range> ranges;
  for (const Divided& each : divided_) ranges.push_back(each.whole);
  return ranges;
}

std::vector<Range> ParameterSlices::held() const {
  std::vector<Range> ranges;
  for (const Divided& each : divided_) ranges.push_back(part_of(each, rank_));
  return ranges;
}

Range ParameterSlices::last_weights(std::int64_t most) const {
  const auto last = std::find_if(divided_.rbegin(), divided_.rend(), [](const Divided& each) { return !each.bias; });
  DDP_ASSERT(last != divided_.rend());
  const Range part = part_of(*last, rank_);
  return {std::max(part.begin, part.end - most), part.end};
}

std::int64_t ParameterSlices::elements() const {
  std::int64_t count = 0;
  for (const Divided& each : divided_) count += each.each * ranks_;
  return count;
}

void ParameterSlices::restrict_to_held(std::vector<ParameterSegment>& segments) const {
  for (const Divided& each : divided_) {
    ParameterSegment& segment = segments.at(each.parameter);
    segment.part_begin = rank_ * each.each;
    segment.part_count = each.each;
  }
}

void ParameterSlices::gather(Communicator& ranks, std::span<float> flat) const {
  for (const Divided& each : divided_) {
    for (int rank = 0; rank < ranks_; ++rank) {
      const Range part = part_of(each, rank);
      const std::span<float> values =
          flat.subspan(static_cast<std::size_t>(part.begin), static_cast<std::size_t>(part.size()));
      ranks.broadcast(std::as_writable_bytes(values), rank);
    }
  }
}

RankExchange::RankExchange(std::unique_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {
  const auto size = static_cast<std::size_t>(ranks_->size());
  outgoing_.reserve(size);
  incoming_.reserve(size);
  shards_.part = static_cast<std::size_t>(ranks_->rank());
  shards_.samples.resize(size);
  shards_.move = [this](std::span<const std::span<const float>> out, std::span<const std::span<float>> in) {
    move(out, in);
  };
}

// An empty message is empty on both sides, and is not sent.
void RankExchange::move(std::span<const std::span<const float>> out, std::span<const std::span<float>> in) {
  DDP_ASSERT(std::ssize(out) == ranks_->size() && std::ssize(in) == ranks_->size());
  outgoing_.clear();
  incoming_.clear();
  for (std::size_t p = 0; p < out.size(); ++p) {
    if (p == shards_.part) continue;
    if (!out[p].empty()) outgoing_.push_back({std::as_bytes(out[p]), static_cast<int>(p)});
    if (!in[p].empty()) incoming_.push_back({std::as_writable_bytes(in[p]), static_cast<int>(p)});
    bytes_sent_ += out[p].size_bytes();
  }
  const std::span<const float> own = out[shards_.part];
  DDP_ASSERT(own.size() == in[shards_.part].size());
  if (!own.empty()) std::memcpy(in[shards_.part].data(), own.data(), own.size_bytes());
  ranks_->exchange(outgoing_, incoming_, "the exchange of activations");
}

LayerTraffic layer_traffic(const Graph& graph, int layer, int ranks, std::int64_t global_batch) {
  const auto outputs = static_cast<double>(std::get<LinearLayer>(layer_at(graph, layer).kind).outputs);
  double elements = 0;
  double inputs = 0;
  for (const Parameter& p : graph.parameters()) {
    if (p.layer != layer) continue;
    elements += static_cast<double>(p.elements());
    if (!p.bias) inputs = static_cast<double>(p.shape.at(1));
  }
  const double others = static_cast<double>(ranks - 1) / ranks;  // of all samples or parts
  const double moved = (reads_images(graph, layer) ? 1 : 2) * inputs + 2 * outputs / ranks;
  return {others * static_cast<double>(global_batch) * moved * sizeof(float), 2 * others * elements * sizeof(float)};
}

LayerTraffic layer_traffic(const Graph& graph, std::span<const int> layers, int ranks, std::int64_t global_batch) {
  LayerTraffic sum;
  for (const int layer : layers) {
    const LayerTraffic each = layer_traffic(graph, layer, ranks, global_batch);
    sum.activations += each.activations;
    sum.gradients += each.gradients;
  }
  return sum;
}

std::string divided_text(const Graph& graph, const ParameterSlices& slices, int ranks, std::int64_t global_batch) {
  const LayerTraffic sent = layer_traffic(graph, slices.layers(), ranks, global_batch);
  return fmt::format("{}; a rank sends {} of activations per step instead of {} of gradients",
                     join(names_of(graph, slices.layers())), format_bytes(static_cast<std::uint64_t>(sent.activations)),
                     format_bytes(static_cast<std::uint64_t>(sent.gradients)));
}

std::vector<int> layers_cheaper_divided(const Graph& graph, int ranks, std::int64_t global_batch) {
  std::vector<int> cheaper;
  for (const int layer : linear_layers(graph)) {
    const LayerTraffic each = layer_traffic(graph, layer, ranks, global_batch);
    const bool divides = std::get<LinearLayer>(layer_at(graph, layer).kind).outputs % ranks == 0;
    if (divides && each.activations < each.gradients) cheaper.push_back(layer);
  }
  return cheaper;
}

std::string split_advice(const Graph& graph, int ranks, std::int64_t global_batch) {
  const std::vector<int> all = linear_layers(graph);
  const std::vector<int> cheaper = layers_cheaper_divided(graph, ranks, global_batch);
  const std::string where =
      fmt::format("{}, global batch {}", counted(static_cast<std::uint64_t>(ranks), "rank"), global_batch);
  const auto bytes = [](double count) { return format_bytes(static_cast<std::uint64_t>(count)); };
  if (all.empty()) return where + ": no linear layer to divide";
  const LayerTraffic sent = layer_traffic(graph, cheaper.empty() ? all : cheaper, ranks, global_batch);
  if (cheaper.empty()) {
    return fmt::format(
        "{}: data parallel is cheaper for all linear layers; a rank sends {} of gradients per step, divided {} of "
        "activations",
        where, bytes(sent.gradients), bytes(sent.activations));
  }
  return fmt::format(
      "{}: --split-linear {} is cheaper; a rank sends {} of activations per step instead of {} of gradients", where,
      join(names_of(graph, cheaper), ","), bytes(sent.activations), bytes(sent.gradients));
}

}  // namespace ddp
