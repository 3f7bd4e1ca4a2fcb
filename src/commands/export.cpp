// ddp_train export: a checkpoint's network as an ONNX file, or its tensors as a safetensors file.
#include "onnx/export.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/output.h"
#include "base/text/text.h"
#include "base/text/utf8.h"
#include "base/types/half.h"
#include "checkpoint/layout.h"
#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"
#include "commands/commands.h"
#include "job/report.h"
#include "onnx/file/half_weights.h"
#include "train/evaluation/sample_logits.h"
#include "train/inputs/model_source.h"
#include "train/inputs/preprocessing.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

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
        "{}: does not record the input size of the model, since an older ddp_train wrote it; resume the run "
        "for one step and export that checkpoint",
        checkpoint.path.string());
  std::string onnx;
  if (!state.model_hash.empty()) {
    const fs::path copy = model_copy_of(checkpoint.path);
    onnx = read_text(copy, ExitCode::checkpoint);
    check(model_hash(onnx) == state.model_hash, ExitCode::checkpoint,
          "{}: not the file that the checkpoint was trained with; restore the original", copy.string());
  }
  TrainedModel model;
  NetworkSource source = make_network(state.model, onnx, {state.image[0], state.image[1], state.image[2]},
                                      state.class_count, {.new_classifier = true, .defaults = state.defaults});
  model.graph = std::move(source.graph);
  // Constants of the network are not stored in the checkpoint.
  if (source.imported) model.parameters = source.imported->parameters;
  model.parameters.resize(static_cast<std::size_t>(model.graph.flat_elements()));
  model.statistics.resize(static_cast<std::size_t>(model.graph.statistic_count()));
  for (const Parameter& p : model.graph.parameters()) {
    if (!p.fixed) model.views.push_back({p.name, p.shape, model.parameters.data() + p.offset});
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

// Metadata for users of the model. Lists are JSON arrays.
TensorMetadata metadata_of(const TrainingState& state) {
  TensorMetadata metadata = {
      {"model", escape_bytes(state.model)},        {"dataset", escape_bytes(state.dataset)},
      {"step", std::to_string(state.step)},        {"input", "(byte / 255 - mean) / std"},
      {"mean", nlohmann::json(state.mean).dump()}, {"std", nlohmann::json(state.deviation).dump()}};
  if (resizes_pictures(state.dataset)) metadata["preprocessing"] = preprocessing_of(state).recipe();
  if (!state.classes.empty()) metadata["classes"] = nlohmann::json(state.classes).dump();
  return metadata;
}

// One per batch normalisation layer, called after its running mean; all have seen every step. `taken` are the names of the
// tensors.
std::vector<CounterTensor> counters_of(const TrainedModel& model, std::int64_t step, std::set<std::string> taken) {
  std::vector<CounterTensor> counters;
  constexpr std::string_view mean = "running_mean";
  for (const Statistic& s : model.graph.statistics()) {
    if (!s.name.ends_with(mean)) continue;
    std::string name = s.name.substr(0, s.name.size() - mean.size()) + "num_batches_tracked";
    if (taken.insert(name).second) counters.push_back({std::move(name), step});
  }
  return counters;
}

// The preprocessing of images during training: byte * scale + shift.
PixelValues pixels_of(const TrainingState& state) {
  PixelValues pixels;
  for (std::size_t c = 0; c < state.mean.size(); ++c) {
    pixels.scale.push_back(static_cast<float>(1 / (255 * state.deviation[c])));
    pixels.shift.push_back(static_cast<float>(-state.mean[c] / state.deviation[c]));
  }
  return pixels;
}

// Every export is read back and must give the same outputs as the checkpoint; a silently altered network might go
// unnoticed for days.
class Verification {
 public:
  Verification(const TrainingState& state, const TrainedModel& model)
      : pixels_(pixels_of(state)), wanted_(sample_logits(model.graph, {model.parameters, model.statistics}, pixels_)) {
    const bool finite = std::all_of(wanted_.begin(), wanted_.end(), [](float v) { return std::isfinite(v); });
    check(finite, ExitCode::non_finite, "the outputs of the checkpoint are not finite; export an earlier checkpoint");
  }

  // `most`: the largest allowed difference, relative to the largest logit.
  void check_logits(const fs::path& to, const Graph& graph, const WeightValues& weights, double most) const {
    const double apart = relative_difference(sample_logits(graph, weights, pixels_), wanted_);
    check(apart <= most, ExitCode::internal,
          "internal error: the outputs of the exported {} differ from the checkpoint (by {:.1e} of the largest "
          "logit), so it was removed; please report it with the model",
          to.string(), apart);
  }

 private:
  PixelValues pixels_;
  std::vector<float> wanted_;
};

// What a file in half precision may change of the logits if its weights were rounded only after batch normalisation was folded
// into them: bfloat16 has 8 bits.
constexpr double kRoundedFolded = 0.1;

// Names of the tensors that the checkpoint has, and of the biases that folding adds.
std::set<std::string> weight_names(const Graph& graph) {
  std::set<std::string> names;
  for (const Parameter& p : graph.parameters()) {
    if (!p.fixed) names.insert(p.name);
  }
  for (const Statistic& s : graph.statistics()) names.insert(s.name);
  for (const Layer& layer : graph.layers()) names.insert(layer.name + ".bias");
  return names;
}

void write_onnx(const ExportOptions& options, const TrainingState& state, const TrainedModel& model,
                const fs::path& place) {
  const ExportedModel exported{model.graph, model.parameters, model.statistics, metadata_of(state), state.model};
  OnnxModel written = export_onnx(exported, {options.fold_batch_norm});
  const bool half = options.precision != StoredFloats::fp32;
  if (half) {
    store_weights_as(written, options.precision == StoredFloats::fp16 ? "FLOAT16" : "BFLOAT16",
                     weight_names(model.graph));
  }
  File file(place, File::Mode::create_new, ExitCode::checkpoint);
  file.write(to_bytes(written));
  file.sync();
  file.close();
  const ImportedModel back =
      import_onnx_bytes(read_text(place, ExitCode::checkpoint, std::uint64_t{1} << 31U), options.to);
  // Folded weights are rounded once more, and then to half precision.
  Verification(state, model)
      .check_logits(options.to, back.graph, {back.parameters, back.statistics},
                    half && options.fold_batch_norm ? kRoundedFolded : 1e-3);
}

// Rounds the tensors to what a file in this precision holds.
void round_to(StoredFloats precision, std::span<const TensorView> views) {
  if (precision == StoredFloats::fp32) return;
  const auto rounded = [&](float value) {
    return precision == StoredFloats::fp16 ? half_to_float(float_to_half(value))
                                           : bfloat16_to_float(float_to_bfloat16(value));
  };
  for (const TensorView& view : views) {
    const std::span values(view.data, view.elements());
    std::transform(values.begin(), values.end(), values.begin(), rounded);
    check(std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); }), ExitCode::non_finite,
          "tensor '{}' has values beyond the largest of {}; export with --export-precision {}", view.name,
          to_string(precision), precision == StoredFloats::fp16 ? "bf16" : "fp32");
  }
}

void write_weights(const ExportOptions& options, const TrainingState& state, const TrainedModel& model,
                   const fs::path& place) {
  TensorMetadata metadata = metadata_of(state);
  metadata["format"] = "pt";
  std::vector<TensorView> views = model.views;
  std::vector<Constant> constants = model.graph.constants();
  for (Constant& constant : constants) views.push_back({constant.name, constant.shape, constant.values.data()});
  std::set<std::string> taken;
  for (const TensorView& view : views) taken.insert(view.name);
  write_safetensors(place, views, metadata, counters_of(model, state.step, std::move(taken)), options.precision);
  // Read back in place; the constants of the network are already there.
  const SafetensorsFile file = SafetensorsFile::read(place, TensorTypes::any);
  std::vector<float> parameters = model.parameters;
  std::vector<float> statistics = model.statistics;
  std::vector<TensorView> into;
  for (const Parameter& p : model.graph.parameters()) {
    if (p.fixed) continue;
    std::fill_n(parameters.begin() + p.offset, p.elements(), 0.0F);
    into.push_back({p.name, p.shape, parameters.data() + p.offset});
  }
  std::fill(statistics.begin(), statistics.end(), 0.0F);
  for (const Statistic& s : model.graph.statistics())
    into.push_back({s.name, {s.channels}, statistics.data() + s.offset});
  file.copy_to(into);
  Verification(state, model).check_logits(options.to, model.graph, {parameters, statistics}, 0);
}

// Written under a temporary name until it is complete and verified by reading it back.
void write_export(const ExportOptions& options, const TrainingState& state, const TrainedModel& model) {
  const fs::path to = options.to;
  const auto write = [&](const fs::path& place) {
    if (format_of(options) == ExportFormat::onnx) {
      write_onnx(options, state, model, place);
    } else {
      write_weights(options, state, model, place);
    }
  };
  replace_by(to, write, ExitCode::checkpoint);
}

}  // namespace

int run_export(const MpiSession& session, const Options& options) {
  together(session, [&] {
    if (session.rank() != 0) return;
    const Checkpoint checkpoint = open_checkpoint(chosen_checkpoint(options));
    const TrainedModel model = read_trained(checkpoint, options.exported.average);
    const StoredFloats precision = options.exported.precision;
    // Folding batch normalisation changes weights, which are rounded afterwards.
    if (!options.exported.fold_batch_norm) round_to(precision, model.views);
    write_export(options.exported, checkpoint.state, model);
    print_text("{}: {} of step {}, {} parameters{}, from {}\n", options.exported.to, checkpoint.state.model,
               checkpoint.state.step, format_count(static_cast<std::uint64_t>(model.graph.trained_count())),
               precision == StoredFloats::fp32 ? "" : fmt::format(" in {}", to_string(precision)),
               checkpoint.path.string());
  });
  return static_cast<int>(ExitCode::done);
}

}  // namespace ddp
