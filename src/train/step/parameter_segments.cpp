#include "train/step/parameter_segments.h"

#include <algorithm>
#include <string>
#include <variant>

#include "base/error.h"
#include "base/text/text.h"
#include "options/batch.h"

namespace ddp {
namespace {

// Calls `apply` for each segment whose parameter matches.
template <class Apply>
void for_matching(const char* option, const std::string& pattern, const Graph& graph,
                  std::vector<ParameterSegment>& segments, const Apply& apply) {
  bool found = false;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Parameter& parameter = graph.parameters()[i];
    if (parameter.fixed) continue;
    names.push_back(parameter.name);
    if (!matches(pattern, parameter.name)) continue;
    found = true;
    apply(segments[i]);
  }
  constexpr std::size_t kShown = 8;
  const bool more = names.size() > kShown;
  if (more) names.resize(kShown);
  check(found, ExitCode::usage, "--{}: no parameter of the model matches '{}'; there are {}{}", option, pattern,
        join(names), more ? ", ..." : "");
}

// The weight of a convolution or a linear layer.
bool is_matrix(const Graph& graph, const Parameter& parameter) {
  const LayerKind& kind = graph.layers()[static_cast<std::size_t>(parameter.layer)].kind;
  return !parameter.bias && !parameter.fixed &&
         (std::holds_alternative<ConvLayer>(kind) || std::holds_alternative<ConvTransposeLayer>(kind) ||
          std::holds_alternative<LinearLayer>(kind));
}

// What Muon updates as matrices: all such weights but the first and the classifier's. That of a convolution has a row for
// each output channel.
void find_matrices(const Graph& graph, std::vector<ParameterSegment>& segments) {
  bool first = true;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Parameter& parameter = graph.parameters()[i];
    if (!is_matrix(graph, parameter)) continue;
    if (!first && parameter.layer != graph.classifier()) segments[i].rows = parameter.shape[0];
    first = false;
  }
}

// Whether a batch normalisation is frozen as a whole.
bool is_frozen(const Graph& graph, int layer, const OptimizerOptions& options) {
  bool any = false;
  for (const Parameter& p : graph.parameters()) {
    if (p.layer != layer || p.fixed) continue;
    if (!p.frozen) return false;
    any = true;
  }
  if (any) return true;
  return std::any_of(graph.statistics().begin(), graph.statistics().end(), [&](const Statistic& s) {
    return s.layer == layer &&
           std::any_of(options.freeze.begin(), options.freeze.end(),
                       [&](const PatternEpochs& each) { return each.epochs == 0 && matches(each.pattern, s.name); });
  });
}

}  // namespace

std::vector<ParameterSegment> parameter_segments(const Graph& graph, const OptimizerOptions& options,
                                                 std::int64_t steps_per_epoch) {
  std::vector<ParameterSegment> segments;
  for (const Parameter& p : graph.parameters()) {
    const bool plain = options.no_decay_on == NoDecay::norm_and_bias && p.shape.size() == 1;
    segments.push_back({p.offset, p.elements(), p.lr_scale, plain ? 0.0F : p.decay_scale, !plain});
  }
  if (options.optimizer == UpdateRule::muon) find_matrices(graph, segments);
  for (const PatternFactor& each : options.lr_for) {
    for_matching("lr-for", each.pattern, graph, segments,
                 [&](ParameterSegment& segment) { segment.lr_scale *= static_cast<float>(each.factor); });
  }
  for (const PatternFactor& each : options.decay_for) {
    for_matching("decay-for", each.pattern, graph, segments,
                 [&](ParameterSegment& segment) { segment.decay_scale *= static_cast<float>(each.factor); });
  }
  for (const PatternEpochs& each : options.lr_fade_for) {
    const auto steps = static_cast<double>(steps_of_epochs(each.epochs, steps_per_epoch));
    for_matching("lr-fade-for", each.pattern, graph, segments, [&](ParameterSegment& segment) {
      segment.fade_steps = steps;
      segment.last_step = std::min(segment.last_step, steps);
    });
  }
  for (const PatternEpochs& each : options.freeze) {
    const auto last = static_cast<double>(steps_of_epochs(each.epochs, steps_per_epoch));
    for_matching("freeze", each.pattern, graph, segments,
                 [&](ParameterSegment& segment) { segment.last_step = std::min(segment.last_step, last); });
  }
  return segments;
}

void freeze(Graph& graph, const OptimizerOptions& options, const std::vector<ParameterSegment>& segments,
            bool keep_statistics) {
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].last_step <= 0 && !graph.parameters()[i].fixed) graph.freeze(i);
  }
  if (!keep_statistics || options.freeze.empty()) return;
  for (std::size_t layer = 0; layer < graph.layers().size(); ++layer) {
    if (!std::holds_alternative<BatchNormLayer>(graph.layers()[layer].kind)) continue;
    if (is_frozen(graph, static_cast<int>(layer), options)) graph.freeze_statistics(static_cast<int>(layer));
  }
}

std::string kept_statistics_text(const Graph& graph) {
  const bool freezes = std::any_of(graph.parameters().begin(), graph.parameters().end(),
                                   [](const Parameter& p) { return p.frozen && !p.fixed; });
  std::uint64_t norms = 0;
  std::uint64_t kept = 0;
  for (const Layer& layer : graph.layers()) {
    const auto* norm = std::get_if<BatchNormLayer>(&layer.kind);
    norms += norm != nullptr ? 1 : 0;
    kept += norm != nullptr && norm->frozen ? 1 : 0;
  }
  if ((!freezes && kept == 0) || norms == 0) return "";
  return fmt::format("{} of {} {} running statistics", kept, counted(norms, "batch normalization"),
                     kept == 1 ? "keeps its" : "keep their");
}

}  // namespace ddp
