#include "train/inputs/initial_weights.h"

#include <algorithm>

#include "model/initialize.h"
#include "train/inputs/init_from.h"
#include "train/inputs/whitening.h"

namespace ddp {
namespace {

// The initialisation of weights; nullopt: that of the model's source.
std::optional<Initial> initial_of(const ModelOptions& options) {
  switch (options.init) {
    case InitKind::model:
      return std::nullopt;
    case InitKind::pytorch:
      return Initial{Initial::Kind::uniform_fan_in, 1};
    case InitKind::normal:
      return Initial{Initial::Kind::normal, static_cast<float>(options.init_std)};
    case InitKind::xavier:
      return Initial{Initial::Kind::xavier_uniform, 1};
    case InitKind::kaiming:
      break;
  }
  return Initial{Initial::Kind::kaiming_fan_in, 1};
}

// The parameters and the statistics before images and other files are read.
std::vector<float> weights_of_model(const Options& options, const Graph& graph,
                                    const std::optional<ImportedModel>& imported, std::span<float> parameters) {
  std::vector<float> statistics(static_cast<std::size_t>(graph.statistic_count()));
  initialize_statistics(graph, statistics);
  // An explicit --init re-initialises the weights of an ONNX file.
  if (imported && options.model.init == InitKind::model) {
    std::copy(imported->parameters.begin(), imported->parameters.end(), parameters.begin());
    statistics = imported->statistics;
  } else {
    initialize(graph, initial_of(options.model), options.optimizer.seed, parameters);
  }
  if (imported && options.model.new_classifier) {
    std::vector<float> random(parameters.size());
    initialize(graph, initial_of(options.model), options.optimizer.seed, random);
    for (const Parameter& p : graph.parameters()) {
      if (p.layer == graph.classifier()) {
        std::copy_n(random.begin() + p.offset, p.elements(), parameters.begin() + p.offset);
      }
    }
  }
  // The constants of a file are not initialised.
  for (const Parameter& p : graph.parameters()) {
    if (!p.fixed || !imported) continue;
    std::copy_n(imported->parameters.begin() + p.offset, p.elements(), parameters.begin() + p.offset);
  }
  return statistics;
}

TrainedOn trained_on(const Options& options, const Inputs& inputs) {
  TrainedOn now;
  const PixelValues& pixels = inputs.pixels;
  if (!options.model.new_classifier) now.classes = inputs.train().class_names();
  for (std::size_t c = 0; c < pixels.scale.size(); ++c) {
    now.deviation.push_back(1 / (255.0 * pixels.scale[c]));
    now.mean.push_back(-pixels.shift[c] * now.deviation[c]);
  }
  return now;
}

}  // namespace

std::vector<float> initial_weights(const Job& job, const Inputs& inputs, const std::optional<ImportedModel>& imported,
                                   std::span<float> parameters) {
  const ModelOptions& options = job.options.model;
  const Graph& graph = inputs.graph;
  std::vector<float> statistics = weights_of_model(job.options, graph, imported, parameters);
  const bool reads = job.rank() == 0 && !job.start.resumed && !job.evaluates();
  if (!reads) return statistics;
  if (options.init == InitKind::model) whiten(inputs.train(), inputs.pixels, graph, parameters);
  const TrainedOn now = trained_on(job.options, inputs);
  if (!options.init_from.empty()) {
    const TrainedOn then = load_initial(options.init_from, graph, {parameters, statistics, options.new_classifier});
    warn_of_other_inputs("--init-from " + options.init_from, then, now);
  } else if (imported && options.init == InitKind::model) {
    warn_of_other_inputs("--model " + options.model, trained_on(imported->metadata), now);
  }
  return statistics;
}

}  // namespace ddp
