#include "train/inputs/inputs.h"

#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "comm/sums/shard_tree.h"
#include "job/report.h"
#include "train/inputs/model_source.h"
#include "train/inputs/resume.h"
#include "train/inputs/single_values.h"
#include "train/parallel/split_linear.h"
#include "train/step/parameter_segments.h"

namespace ddp {
namespace {

void check_gradient_precision(const Options& options) {
  if (options.distributed.gradient_precision == GradientPrecision::fp32) return;
  check(!options.optimizer.deterministic && options.distributed.reduction == Reduction::ring, ExitCode::usage,
        "--gradient-precision bf16 requires --reduction ring and cannot be combined with --deterministic");
}

// Statistics over the global batch: a step processes the shards of a rank one after the other, so that the first would
// wait for the statistics of the others forever.
void synchronize(const Job& job, Inputs& inputs) {
  const int ranks = job.size();
  const int shards = inputs.batch.shards;
  check(job.on_cpu(), ExitCode::usage,
        "--sync-batch-norm works on CPUs only; use --device cpu, or normalize without the batch's statistics");
  check(shards == ranks, ExitCode::usage,
        "--sync-batch-norm requires one logical shard per rank, here there are {} shards on {} ranks; use "
        "--logical-shards {}, or {} ranks",
        shards, ranks, ranks, shards);
  inputs.graph.synchronize_batch_norm();
  inputs.fingerprint.push_back({"batch normalisation", "synchronized"});
}

// Other numbers of shards on each rank would leave some of them alone at a divided layer.
void divide_layers(const Job& job, const BatchPlan& batch, Graph& graph) {
  const int ranks = job.size();
  check(job.on_cpu(), ExitCode::usage, "--split-linear works on CPUs only; use --device cpu, or remove it");
  const std::vector<int> layers = layers_to_split(graph, job.options.distributed.split_linear, ranks);
  check(batch.shards % ranks == 0, ExitCode::usage,
        "--split-linear requires as many logical shards on each rank, here there are {} shards on {} ranks; use "
        "--logical-shards {}, or a number of ranks that divides {}",
        batch.shards, ranks, ranks, batch.shards);
  if (ranks == 1) return;
  for (const int layer : layers) graph.split_linear(layer, ranks);
}

// Layers that communicate with those of other shards in training.
void connect_shards(const Job& job, Inputs& inputs) {
  if (job.options.model.sync_batch_norm) synchronize(job, inputs);
  if (splits_linear(job.options.distributed)) divide_layers(job, inputs.batch, inputs.graph);
}

// Checks the patterns of parameters, and freezes what --freeze freezes for the whole run.
void freeze_parts(const Job& job, const BatchPlan& batch, Graph& graph) {
  const OptimizerOptions& options = job.options.optimizer;
  const std::vector<ParameterSegment> segments = parameter_segments(graph, options, batch.steps_per_epoch);
  if (!job.evaluates()) freeze(graph, options, segments, keeps_frozen_statistics(options, job.defaults));
}

// What the network computes of a byte; for a checkpoint that is evaluated, with the exact factors of its network.
PixelValues pixel_values(const Normalization& normalization, const std::optional<TrainingState>& evaluated) {
  PixelValues pixels;
  for (std::size_t c = 0; c < normalization.mean.size(); ++c) {
    pixels.scale.push_back(1.0F / (255.0F * normalization.deviation[c]));
    pixels.shift.push_back(-normalization.mean[c] / normalization.deviation[c]);
  }
  for (std::size_t c = 0; evaluated && c < evaluated->mean.size(); ++c) {
    pixels.scale[c] = static_cast<float>(1 / (255.0 * evaluated->deviation[c]));
    pixels.shift[c] = static_cast<float>(-evaluated->mean[c] / evaluated->deviation[c]);
  }
  return pixels;
}

// What a resumed run with another number of shards does differently.
void note_changed_shards(const Job& job, const Inputs& inputs) {
  const std::optional<TrainingState>& resumed = job.start.resumed;
  if (!resumed || job.rank() != 0) return;
  if (const std::string text = changed_shards(job.options, inputs, *resumed); !text.empty()) {
    log_info("resumed: {}", text);
  }
}

}  // namespace

Inputs make_inputs(const Job& job, const std::string& onnx, const FolderDivision& division,
                   std::optional<ImportedModel>& imported) {
  const Options& options = job.options;
  const std::optional<TrainingState>& resumed = job.start.resumed;
  // First the checks that need no data.
  check_gradient_precision(options);
  const int stages = place_of(job).stages;
  (void)resolve_batch(job.batch, job.size(), std::numeric_limits<std::int32_t>::max(), stages);
  Inputs inputs;
  inputs.images = open_data(job, division);
  const Dataset& train = inputs.train();
  inputs.batch = resolve_batch(job.batch, job.size(), train.size(), stages);
  const std::int64_t copies = options.data.repeat_augment;
  check(job.evaluates() || inputs.batch.global_batch % copies == 0, ExitCode::usage,
        "--repeat-augment {} does not divide the global batch of {}; choose a --global-batch that is a multiple of it",
        copies, inputs.batch.global_batch);
  if (resumed) {
    check_same_run(options, *resumed, inputs.batch);
    check_same_classes(train.class_names(), *resumed);
  }
  // Weights that are evaluated come with their number of classes.
  const bool replaces = options.model.new_classifier || job.evaluates();
  NetworkSource source = make_network(options.model.model, onnx, train.shape(), train.classes(),
                                      {.new_classifier = replaces, .defaults = job.defaults});
  inputs.graph = std::move(source.graph);
  imported = std::move(source.imported);
  if (imported) inputs.file_constants = imported->constants;
  if (job.rank() == 0) inputs.onnx = onnx;
  inputs.onnx_hash = model_hash(onnx);
  inputs.fingerprint = data_fingerprint(inputs.images.sets, inputs.images.preprocessing.normalization);
  if (resizes_pictures(job.options.data.dataset) && reads_all_pictures(job.defaults)) {
    const Preprocessing& p = inputs.images.preprocessing;
    inputs.fingerprint.push_back({"EXIF orientation", p.upright ? "on" : "off"});
    inputs.fingerprint.push_back(
        {"resizing", fmt::format("by {}, {}, crop {:g}", to_string(p.resize), to_string(p.filter), p.crop)});
  }
  inputs.fingerprint.push_back(network_part(inputs.graph));
  if (!job.evaluates()) connect_shards(job, inputs);
  if (resumed) {
    check_same_shards(options, inputs, *resumed);
    check_same_model(options, inputs, *resumed);
    check_same_data(options, inputs, *resumed);
  }
  freeze_parts(job, inputs.batch, inputs.graph);
  inputs.sizes = job.evaluates() ? ProgressiveSizes(train.shape()) : progressive_sizes(options.data, train.shape());
  inputs.smaller = smaller_images(inputs.sizes, inputs.graph, train, options.model.model);
  if (!job.evaluates()) inputs.batch = without_single_values(job, inputs);
  if (resumed) check_same_epoch(inputs.batch, *resumed);
  inputs.pixels = pixel_values(inputs.images.preprocessing.normalization, job.start.evaluated);
  return inputs;
}

FolderDivision agreed_division(const MpiSession& session, const Job& job) {
  FolderDivision division = together(session, [&] { return job.rank() == 0 ? divide_folder(job) : FolderDivision{}; });
  division.parts = job.ranks.broadcast_text(division.parts, 0);
  division.rule = job.ranks.broadcast_text(division.rule, 0);
  division.indexes.train = job.ranks.broadcast_text(division.indexes.train, 0);
  division.indexes.test = job.ranks.broadcast_text(division.indexes.test, 0);
  return division;
}

Inputs gather_inputs(const MpiSession& session, const Job& job, std::optional<ImportedModel>& imported) {
  // Only rank 0 may have access to the file.
  const std::string read = together(session, [&] {
    return job.rank() == 0 ? read_model(job.options.model.model, job.start.model_copy) : std::string();
  });
  const std::string onnx = job.ranks.broadcast_text(read, 0);
  FolderDivision division = agreed_division(session, job);
  Inputs inputs = together(session, [&] { return make_inputs(job, onnx, division, imported); });
  inputs.split = std::move(division.csv);
  check_same_on_all_ranks(job.ranks, inputs.fingerprint, ExitCode::preflight, "use the same data on all ranks");
  note_changed_shards(job, inputs);
  return inputs;
}

NetworkConfig network_config(const Job& job, const Inputs& inputs) {
  NetworkConfig config;
  config.batch = inputs.batch.per_shard;
  config.image = inputs.images.preprocessing.shape;
  config.label_smoothing = static_cast<float>(job.options.optimizer.label_smoothing);
  config.scale = inputs.pixels.scale;
  config.shift = inputs.pixels.shift;
  return config;
}

}  // namespace ddp
