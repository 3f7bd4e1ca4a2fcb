// ddp_train replay DIR: computes the step that a run has recorded as non-finite once more, value by value.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/output.h"
#include "base/text/text.h"
#include "checkpoint/safetensors.h"
#include "commands/commands.h"
#include "commands/ranks.h"
#include "job/report.h"
#include "options/defaults.h"
#include "options/parse.h"
#include "train/inputs/fingerprint.h"
#include "train/inputs/image_sizes.h"
#include "train/inputs/model_source.h"
#include "train/loop/open_device.h"
#include "train/nonfinite/non_finite.h"
#include "train/nonfinite/trace.h"
#include "train/step/parameter_segments.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

// The options of the run, with the device and cores of this command.
Options recorded_options(const Options& given) {
  const std::string config = (fs::path(given.folders[0]) / "config.cfg").string();
  const std::array<const char*, 2> words = {"--config", config.c_str()};
  Options options = parse_options(words);
  options.command = given.command;
  options.folders = given.folders;
  options.device = given.device;
  options.distributed.threads = given.distributed.threads;
  options.distributed.bind = given.distributed.bind;
  options.run = given.run;
  return options;
}

// The kernels of the run, or others if those are not available.
LayoutPlan plan_of(Backend& backend, const std::vector<Stage>& stages, const Graph& graph, const NetworkConfig& config,
                   const std::string& text) {
  try {
    LayoutPlan plan = layout_plan_from_text(text, stages);
    NetworkConfig only_planned = config;
    only_planned.plan_only = true;
    (void)Network(backend, graph, only_planned, plan);
    return plan;
  } catch (const Error& error) {
    log_warning("the run's kernels are not available here ({}); others are chosen, and values differ by rounding",
                error.what());
    return plan_layouts(backend, stages, ChoiceMode::fixed);
  }
}

// The weights of the folder, flat; those that are constants of the model's file are in no file of weights.
struct Weights {
  std::vector<float> parameters;
  std::vector<float> statistics;
};
Weights weights_of(const fs::path& folder, const NetworkSource& source, const std::string& hash) {
  Weights weights{std::vector<float>(static_cast<std::size_t>(source.graph.flat_elements())),
                  std::vector<float>(static_cast<std::size_t>(source.graph.statistic_count()))};
  auto& [flat, statistics] = weights;
  if (source.imported) flat = source.imported->parameters;
  std::vector<TensorView> views;
  for (const Parameter& p : source.graph.parameters()) {
    if (!p.fixed) views.push_back({p.name, p.shape, flat.data() + p.offset});
  }
  for (const Statistic& s : source.graph.statistics()) {
    views.push_back({s.name, {s.channels}, statistics.data() + s.offset});
  }
  const SafetensorsFile file = SafetensorsFile::read(folder / "weights.safetensors");
  file.check_same(views);
  file.copy_to(views);
  check(tensors_part("weights", views).value == hash, ExitCode::checkpoint,
        "{}: not the weights of the step that batch.json describes; use an intact copy of the folder",
        (folder / "weights.safetensors").string());
  return weights;
}

// As the run has frozen it: for the same kernels, and statistics that are kept.
void freeze_as_run(Graph& graph, const OptimizerOptions& options, const TrainingState& state) {
  const bool keeps = options.frozen_statistics ? *options.frozen_statistics == FrozenStatistics::keep
                                               : keeps_frozen_statistics(state.defaults);
  freeze(graph, options, parameter_segments(graph, options, 1), keeps);
}

Trace compute(const Ranks& ranks, const Options& options, const NonFinite& recorded) {
  const fs::path folder = options.folders[0];
  const std::string text = read_text(folder / "state.json", ExitCode::checkpoint);
  const TrainingState state = parse_state(text, folder / "state.json");
  const auto belong = [&folder](bool together) {
    check(together, ExitCode::checkpoint, "{}: its files do not belong together; use an intact copy of the folder",
          folder.string());
  };
  belong(state.image.size() == 3);
  const Shape full{state.image[0], state.image[1], state.image[2]};
  // With --progressive-size, that of the step.
  const Shape image = recorded.image.channels == 0 ? full : recorded.image;
  belong(image.channels == full.channels && recorded.pixels.size() == recorded.indices.size() * image.size());
  const std::string& model = options.model.model;
  NetworkSource source = make_network(model, read_model(model, folder / "model.onnx"), full, state.class_count,
                                      {.new_classifier = true, .defaults = state.defaults});
  freeze_as_run(source.graph, options.optimizer, state);
  if (image != full) source.graph = source.graph.at_size(image.height, image.width);
  const std::unique_ptr<Backend> backend = open_backend(ranks.device);
  NetworkConfig config;
  config.batch = recorded.shard_batch;
  config.image = image;
  config.scale = recorded.scale;
  config.shift = recorded.shift;
  config.label_smoothing = static_cast<float>(options.optimizer.label_smoothing);
  config.join = false;
  const std::vector<Stage> stages =
      make_stages(source.graph, config.batch, backend->ops().traits().takes_bias_into_norm);
  Network network(
      *backend, source.graph, config,
      plan_of(*backend, stages, source.graph, config, image == full ? state.plan : stored_plan(state, image)));

  const auto [flat, statistics] = weights_of(folder, source, recorded.weights_hash);
  const Memory parameters = backend->memory().allocate(flat.size() * sizeof(float), "the parameters");
  backend->queue().upload(parameters.data(), flat.data(), flat.size() * sizeof(float));
  const auto samples = static_cast<std::int64_t>(recorded.indices.size());
  BatchStage stage(backend->device(),
                   {.image_bytes = image.size(), .max_samples = samples, .mixed = !recorded.other_labels.empty()});
  stage.set({recorded.pixels, recorded.labels, samples, recorded.indices, recorded.keys, recorded.other_labels,
             recorded.label_weights},
            0);
  stage.enqueue();
  Trace all;
  std::int64_t first = 0;
  for (const std::int64_t count : recorded.shards) {
    if (count == 0) continue;
    add_shard(all,
              trace_shard(*backend, network, parameters.at<float>(0), statistics, stage.samples(first, count),
                          1.0F / static_cast<float>(samples)),
              first);
    first += count;
  }
  return all;
}

void print(const NonFinite& recorded, const Trace& trace) {
  const auto samples = static_cast<double>(recorded.indices.size());
  print_text("step {} (epoch {}), {}, learning rate {:g}, weights {}\n\n{}\n", recorded.step, recorded.epoch,
             counted(recorded.indices.size(), "sample"), recorded.lr, recorded.weights_hash, trace_table(trace.rows));
  print_text("loss {} here, {} in the run\n", trace.loss_sum / samples, recorded.loss);
  const TraceRow* first = first_not_finite(trace.rows);
  if (first == nullptr) {
    print_text("here: every value of every shard is finite\n");
  } else {
    std::vector<std::uint32_t> indices;
    for (const std::int64_t sample : first->samples) {
      indices.push_back(recorded.indices[static_cast<std::size_t>(sample)]);
    }
    std::sort(indices.begin(), indices.end());
    const auto file_of = [&](std::uint32_t index) -> std::string {
      const auto found = std::find(recorded.indices.begin(), recorded.indices.end(), index);
      return recorded.files.empty() ? "" : recorded.files[static_cast<std::size_t>(found - recorded.indices.begin())];
    };
    print_text("here: first in {}{}\n", first->where, indices.empty() ? "" : ", " + sample_list(indices, file_of));
  }
  print_text("in the run: {}\n", recorded.text);
}

}  // namespace

int run_replay(const MpiSession& session, const Options& given) {
  Options options = given;
  NonFinite recorded;
  together(session, [&] {
    check(session.size() == 1, ExitCode::usage, "replay runs on one rank; start it without mpirun, or with -np 1");
    recorded = read_non_finite(given.folders[0]);
    options = recorded_options(given);
  });
  const Ranks ranks = open_ranks(session, options);
  return or_abort(session, [&] {
    print(recorded, compute(ranks, options, recorded));
    return static_cast<int>(ExitCode::done);
  });
}

}  // namespace ddp
