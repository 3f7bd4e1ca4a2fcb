// ddp_train export: a checkpoint's network as an ONNX file, or its tensors as a safetensors file.
#include "model/onnx/export.h"

#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "checkpoint/layout.h"
#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"
#include "commands/commands.h"
#include "runtime/report.h"
#include "train/model_source.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

Checkpoint find_exported(const Options& options) {
  const ExportOptions& exported = options.exported;
  const fs::path run = exported.run.empty() ? run_directory(options) : fs::path(exported.run);
  if (exported.checkpoint == "latest") return open_checkpoint(run);
  return open_checkpoint(exported.checkpoint == "best" ? run / "best" : fs::path(exported.checkpoint));
}

// The network of a checkpoint, with its tensors.
struct TrainedModel {
  Graph graph{Shape{}};
  std::vector<float> parameters;
  std::vector<float> statistics;
  std::vector<TensorView> views;  // of all tensors, by name
};

TrainedModel read_trained(const Checkpoint& checkpoint, bool average) {
  const TrainingState& state = checkpoint.state;
  check(state.image.size() == 3 && state.class_count > 0, ExitCode::checkpoint,
        "{}: it does not say for which images the model is, as it was written by an older ddp_train; resume the run "
        "for a step, and export that",
        checkpoint.path.string());
  std::string onnx;
  if (!state.model_hash.empty()) {
    const fs::path copy = model_copy_of(checkpoint.path);
    onnx = read_text(copy, ExitCode::checkpoint);
    check(model_hash(onnx) == state.model_hash, ExitCode::checkpoint,
          "{}: not the file that the checkpoint was trained with; put that back", copy.string());
  }
  TrainedModel model;
  model.graph =
      make_network(state.model, onnx, {state.image[0], state.image[1], state.image[2]}, state.class_count).graph;
  model.parameters.resize(static_cast<std::size_t>(model.graph.parameter_count()));
  model.statistics.resize(static_cast<std::size_t>(model.graph.statistic_count()));
  for (const Parameter& p : model.graph.parameters()) {
    model.views.push_back({p.name, p.shape, model.parameters.data() + p.offset});
  }
  for (const Statistic& s : model.graph.statistics()) {
    model.views.push_back({s.name, {s.channels}, model.statistics.data() + s.offset});
  }
  if (average) {
    load_average(checkpoint, state.model, model.views);
  } else {
    load(checkpoint, state.model, model.views);
  }
  return model;
}

// What a user of the model must know. Lists are JSON's.
TensorMetadata metadata_of(const TrainingState& state) {
  TensorMetadata metadata = {{"model", state.model},
                             {"dataset", state.dataset},
                             {"step", std::to_string(state.step)},
                             {"input", "(byte / 255 - mean) / std"},
                             {"mean", nlohmann::json(state.mean).dump()},
                             {"std", nlohmann::json(state.deviation).dump()}};
  if (!state.classes.empty()) metadata["classes"] = nlohmann::json(state.classes).dump();
  return metadata;
}

// One a batch normalisation, which has seen every step.
std::vector<CounterTensor> counters_of(const TrainedModel& model, std::int64_t step) {
  std::vector<CounterTensor> counters;
  for (std::size_t i = 0; i < model.graph.layers().size(); ++i) {
    const Layer& layer = model.graph.layers()[i];
    if (std::holds_alternative<BatchNormLayer>(layer.kind))
      counters.push_back({layer.name + ".num_batches_tracked", step});
  }
  return counters;
}

void write_export(const ExportOptions& options, const TrainingState& state, const TrainedModel& model) {
  const fs::path to = options.to;
  TensorMetadata metadata = metadata_of(state);
  if (options.format == ExportFormat::onnx) {
    const ExportedModel exported{model.graph, model.parameters, model.statistics, std::move(metadata), state.model};
    replace_file(to, to_bytes(export_onnx(exported, {options.fold_batch_norm})), ExitCode::checkpoint);
    return;
  }
  metadata["format"] = "pt";
  const auto write = [&](const fs::path& temporary) {
    write_safetensors(temporary, model.views, metadata, counters_of(model, state.step));
  };
  replace_by(to, write, ExitCode::checkpoint);
}

}  // namespace

int run_export(const MpiSession& session, const Options& options) {
  together(session, [&] {
    if (session.rank() != 0) return;
    const Checkpoint checkpoint = find_exported(options);
    const TrainedModel model = read_trained(checkpoint, options.exported.average);
    write_export(options.exported, checkpoint.state, model);
    fmt::print("{}: {} of step {}, {} parameters, from {}\n", options.exported.to, checkpoint.state.model,
               checkpoint.state.step, format_count(static_cast<std::uint64_t>(model.graph.parameter_count())),
               checkpoint.path.string());
  });
  return static_cast<int>(ExitCode::done);
}

}  // namespace ddp
