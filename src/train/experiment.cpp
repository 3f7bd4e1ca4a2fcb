#include "train/experiment.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text/text.h"
#include "base/text/utf8.h"
#include "checkpoint/layout.h"
#include "data/pipeline/augmentation.h"
#include "gradients/bucket_size.h"
#include "job/report.h"
#include "model/initialize.h"
#include "train/choose_plan.h"
#include "train/fit.h"
#include "train/init_from.h"
#include "train/model_source.h"
#include "train/open_device.h"
#include "train/parameter_segments.h"
#include "train/pipeline_setup.h"
#include "train/preprocessing.h"
#include "train/resume.h"
#include "train/shared_state.h"
#include "train/single_values.h"
#include "train/whitening.h"

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

// The exact factors with which the checkpoint's network scaled pixels.
void take_pixels(const TrainingState& state, NetworkConfig& config) {
  for (std::size_t c = 0; c < state.mean.size(); ++c) {
    config.scale[c] = static_cast<float>(1 / (255.0 * state.deviation[c]));
    config.shift[c] = static_cast<float>(-state.mean[c] / state.deviation[c]);
  }
}

void check_gradient_precision(const Options& options) {
  if (options.distributed.gradient_precision == GradientPrecision::fp32) return;
  check(!options.optimizer.deterministic && options.distributed.reduction == Reduction::ring, ExitCode::usage,
        "--gradient-precision bf16 requires --reduction ring and cannot be combined with --deterministic");
}

RandAugment rand_augment_of(const DataOptions& options) {
  if (options.rand_augment.empty()) return {};
  return {.operations = options.rand_augment[0], .magnitude = options.rand_augment[1]};
}

Augmentation augmentation_of(const DataOptions& options, const Shape& image, const Normalization& normalization) {
  const bool reflects = options.random_crop_fill == CropFill::reflect;
  check(
      !reflects || 2 * options.random_crop_padding < std::min(image.height, image.width), ExitCode::usage,
      "--random-crop-fill reflect requires a --random-crop-padding below half the image size, but it is {} for images "
      "of {}x{}",
      options.random_crop_padding, image.height, image.width);
  Augmentation augmentation{.random_resized_crop = options.random_resized_crop,
                            .crop_padding = options.random_crop_padding,
                            .crop_reflects = reflects,
                            .flip = options.random_flip != FlipMode::off,
                            .flip_alternates = options.random_flip == FlipMode::alternate,
                            .rand_augment = rand_augment_of(options),
                            .trivial_augment = options.trivial_augment,
                            .color_jitter = options.color_jitter,
                            .cutout = options.cutout,
                            .erasing = options.random_erasing,
                            .fill = {}};
  for (const float mean : normalization.mean) {
    augmentation.fill.push_back(static_cast<std::uint8_t>(std::lround(255 * mean)));
  }
  return augmentation;
}

// Statistics over the global batch: a step processes the shards of a rank one after the other, so that the first would
// wait for the statistics of the others forever.
void synchronize(Experiment& e, int ranks) {
  check(e.device.gpu_module == nullptr && !e.device.described, ExitCode::usage,
        "--sync-batch-norm works on CPUs only; use --device cpu, or normalize without the batch's statistics");
  check(e.batch.shards == ranks, ExitCode::usage,
        "--sync-batch-norm requires one logical shard per rank, here there are {} shards on {} ranks; use "
        "--logical-shards {}, or {} ranks",
        e.batch.shards, ranks, ranks, e.batch.shards);
  e.graph.synchronize_batch_norm();
  e.fingerprint.push_back({"batch normalisation", "synchronized"});
}

// Other numbers of shards on each rank would leave some of them alone at a divided layer.
void split_linear(Experiment& e, int ranks, int rank) {
  check(e.device.gpu_module == nullptr && !e.device.described, ExitCode::usage,
        "--split-linear works on CPUs only; use --device cpu, or remove it");
  const std::vector<int> layers = layers_to_split(e.graph, e.options.distributed.split_linear, ranks);
  check(e.batch.shards % ranks == 0, ExitCode::usage,
        "--split-linear requires as many logical shards on each rank, here there are {} shards on {} ranks; use "
        "--logical-shards {}, or a number of ranks that divides {}",
        e.batch.shards, ranks, ranks, e.batch.shards);
  if (ranks == 1) return;
  for (const int layer : layers) e.graph.split_linear(layer, ranks);
  e.slices = ParameterSlices(e.graph, layers, ranks, rank);
}

// Checks the patterns of parameters, and freezes what --freeze freezes for the whole run.
void freeze_parts(Experiment& e, bool evaluates) {
  const OptimizerOptions& options = e.options.optimizer;
  const std::vector<ParameterSegment> segments = parameter_segments(e.graph, options, e.batch.steps_per_epoch);
  if (evaluates) return;
  const bool keeps = options.frozen_statistics ? *options.frozen_statistics == FrozenStatistics::keep
                                               : keeps_frozen_statistics(e.defaults);
  freeze(e.graph, options, segments, keeps);
  // For the configuration that the run stores.
  if (!options.freeze.empty()) {
    e.options.optimizer.frozen_statistics = keeps ? FrozenStatistics::keep : FrozenStatistics::update;
  }
}

// Layers that communicate with those of other shards in training.
void connect_shards(Experiment& e, int ranks, int rank) {
  if (e.options.model.sync_batch_norm) synchronize(e, ranks);
  if (splits_linear(e.options.distributed)) split_linear(e, ranks, rank);
}

// The weights of the model's file, or random ones; then, if `reads`, those that depend on the training images, and those
// of --init-from. All ranks have those of rank 0 in the end; those that share them do not write at the same time.
void first_weights(Experiment& e, const std::optional<ImportedModel>& imported, bool reads) {
  if (e.share && !e.share->first()) return;
  const ModelOptions& options = e.options.model;
  const std::span<float> parameters = e.host_parameters->values();
  std::vector<float> statistics(static_cast<std::size_t>(e.graph.statistic_count()));
  initialize_statistics(e.graph, statistics);
  // An explicit --init re-initialises the weights of an ONNX file.
  if (imported && options.init == InitKind::model) {
    std::copy(imported->parameters.begin(), imported->parameters.end(), parameters.begin());
    statistics = imported->statistics;
  } else {
    initialize(e.graph, initial_of(options), e.options.optimizer.seed, parameters);
  }
  if (imported && options.new_classifier) {
    std::vector<float> random(parameters.size());
    initialize(e.graph, initial_of(options), e.options.optimizer.seed, random);
    for (const Parameter& p : e.graph.parameters()) {
      if (p.layer == e.graph.classifier()) {
        std::copy_n(random.begin() + p.offset, p.elements(), parameters.begin() + p.offset);
      }
    }
  }
  // The constants of a file are not initialised.
  for (const Parameter& p : e.graph.parameters()) {
    if (!p.fixed || !imported) continue;
    std::copy_n(imported->parameters.begin() + p.offset, p.elements(), parameters.begin() + p.offset);
  }
  if (reads && options.init == InitKind::model) whiten(*e.data.train, {e.scale, e.shift}, e.graph, parameters);
  TrainedOn now;
  if (!options.new_classifier) now.classes = e.data.train->class_names();
  for (std::size_t c = 0; c < e.scale.size(); ++c) {
    now.deviation.push_back(1 / (255.0 * e.scale[c]));
    now.mean.push_back(-e.shift[c] * now.deviation[c]);
  }
  if (reads && !options.init_from.empty()) {
    const TrainedOn then = load_initial(options.init_from, e.graph, {parameters, statistics, options.new_classifier});
    warn_of_other_inputs("--init-from " + options.init_from, then, now);
  } else if (reads && imported && options.init == InitKind::model) {
    warn_of_other_inputs("--model " + options.model, trained_on(imported->metadata), now);
  }
  e.statistics->set(statistics);
}

}  // namespace

Reduction reduction_of(const Options& options) {
  // Only the fixed tree adds in an order that is independent of the number of ranks.
  return options.optimizer.deterministic ? Reduction::tree : options.distributed.reduction;
}

// Only a device with a queue of its own computes while the host goes on. Sums by messages make the host wait in each
// step, as do the stages of a pipeline, and shards are only moved between steps.
std::size_t steps_in_flight(const Experiment& e) {
  constexpr std::size_t kOnGpu = 4;
  if (e.options.batch.balance || e.pipeline) return 1;
  if (e.options.device.steps_in_flight > 0) return static_cast<std::size_t>(e.options.device.steps_in_flight);
  const bool recordable = e.sums == nullptr || e.sums->recordable();
  return e.device.gpu_module != nullptr && recordable ? kOnGpu : 1;
}

// Only the ends of a pipeline see images and labels.
StageConfig batch_buffers(const Experiment& e, const TrainingImages& images) {
  const bool resident = images.resident != nullptr;
  return {.image_bytes = e.place.first() ? images.data->shape().size() : 0,
          .max_samples = e.batch.per_rank,
          .resident = images.resident,
          .mixed = mixes(e.options.data) && (e.place.first() || e.place.last()),
          .edited = images.edits != nullptr,
          .buffers = resident ? 1 : steps_in_flight(e),
          .steps = resident ? static_cast<std::size_t>(e.batch.steps_per_epoch) : 0};
}

NetworkConfig network_config(const Options& options, const Preprocessing& preprocessing, std::int64_t batch) {
  const Normalization& normalization = preprocessing.normalization;
  NetworkConfig config;
  config.batch = batch;
  config.image = preprocessing.shape;
  config.label_smoothing = static_cast<float>(options.optimizer.label_smoothing);
  for (std::size_t c = 0; c < normalization.mean.size(); ++c) {
    config.scale.push_back(1.0F / (255.0F * normalization.deviation[c]));
    config.shift.push_back(-normalization.mean[c] / normalization.deviation[c]);
  }
  return config;
}

void broadcast_floats(Communicator& ranks, HostMirror& mirror) {
  if (!mirror.values().empty()) ranks.broadcast(std::as_writable_bytes(mirror.values()), 0);
  mirror.push();
}

namespace {

// Opens the data sets of the run, augmented for training.
void open_data(Experiment& e, const ExperimentInputs& inputs) {
  const DataOptions& data = e.options.data;
  const bool all_names = knows_all_folder_names(e.defaults);
  std::vector<std::string> classes;
  if (inputs.evaluated != nullptr) {
    for (const std::string& name : inputs.evaluated->classes) classes.push_back(unescape_bytes(name));
  }
  const FolderOptions folder{.preprocessing = preprocessing_of(data, e.defaults),
                             .max_bad_samples = data.max_bad_samples,
                             .image_cache = data.image_cache,
                             .rules = {.valid_evaluates = all_names, .jfif_is_jpeg = all_names},
                             .classes = std::move(classes)};
  e.data =
      inputs.data == DataUse::sample
          ? open_sample(data.dataset, data.data_dir, data.train_limit, omp_get_max_threads(), folder)
          : open_dataset(data.dataset, data.data_dir, data.train_limit, data.test_limit, omp_get_max_threads(), folder);
  e.preprocessing = folder.preprocessing;
  e.preprocessing.shape = e.data.train->shape();
  Normalization& normalization = e.preprocessing.normalization;
  const bool unmeasurable = e.data.without_train && !inputs.evaluated->mean.empty();
  normalization =
      unmeasurable ? preprocessing_of(*inputs.evaluated).normalization : choose_normalization(data, *e.data.train);
  if (inputs.evaluated != nullptr) normalization = evaluated_normalization(normalization, *inputs.evaluated);
  const Augmentation augmentation = augmentation_of(data, e.data.train->shape(), normalization);
  // A GPU edits images while it reads them. Threads that mix images augment them before.
  const bool only_edits = augmentation.only_edits() && !mixes(data);
  e.keeps_images = only_edits && e.data.train->fixed();
  if (augmentation.any() && only_edits && e.device.gpu_module != nullptr) e.edits = augmentation;
  if (augmentation.any()) e.data.train = std::make_unique<AugmentedDataset>(std::move(e.data.train), augmentation);
}

// Collective: the ranks must have the same plan, and with --deterministic the same kernels and libraries. Otherwise
// machines may be heterogeneous.
void check_same_plan(Communicator& ranks, const Experiment& e) {
  Fingerprint plan = {plan_part(e.plan_text)};
  if (e.options.optimizer.deterministic) plan.push_back(kernels_part(*e.backend));
  check_same_on_all_ranks(ranks, plan, ExitCode::preflight,
                          "use the same libraries on all ranks, and DDP_INSTRUCTION_SET=avx2 for the same kernels, or "
                          "omit --deterministic");
}

void allocate_state(Experiment& e) {
  const auto count = static_cast<std::size_t>(e.graph.flat_elements());
  const std::size_t bytes = count * sizeof(float);
  e.parameter_memory = e.share ? e.share->take(bytes) : e.backend->queue().allocate(bytes, "the parameters");
  e.host_parameters = std::make_unique<HostMirror>(e.backend->queue(), e.parameters(), count);
  e.statistics = std::make_unique<ShardStatistics>(*e.backend, e.graph, e.batch, e.place.replica,
                                                   e.options.optimizer.lookahead > 0);
}

// The plan of the full size and of those of smaller images, or those of the checkpoint.
void choose_plans(const MpiSession& session, Communicator& ranks, Experiment& e, const std::vector<Stage>& stages,
                  const NetworkConfig& config, const std::optional<TrainingState>& resumed) {
  // Stored plans are for the shards' number of samples.
  const bool stores = resumed && resumed->logical_shards == e.batch.shards;
  ChosenPlan chosen =
      choose_plan(session, ranks, e, {e.graph, stages, config, stores ? resumed->plan : std::string(), resumed});
  e.plan_text = std::move(chosen.text);
  e.plan_origin = std::move(chosen.origin);
  for (SmallerImages& smaller : e.smaller) {
    const std::string stored = stores ? stored_plan(*resumed, smaller.image) : std::string();
    smaller.plan_text =
        choose_plan(session, ranks, e, {smaller.graph, smaller.stages, smaller.config(config), stored, resumed}).text;
  }
}

void take_edits(const Experiment& e, NetworkConfig& config) {
  if (!e.edits) return;
  config.edits_reflect = e.edits->crop_reflects;
  config.fill = e.edits->fill;
}

// Collective. A pipeline, which sums the gradients of each part alone, is divided here.
void set_up_sums(const MpiSession& session, Communicator& ranks, Experiment& e, const NetworkConfig& config,
                 const std::vector<Stage>& stages, const std::optional<TrainingState>& resumed) {
  const bool divides = e.place.stages > 1;
  const bool chooses = e.options.distributed.bucket_mib == 0;
  std::optional<LinkSpeed> link;
  if (ranks.size() > 1 && !e.device.gpu_module && (chooses || divides)) link = measure_link(ranks);
  if (divides) {
    set_up_pipeline(session, ranks, e, config, stages, *link,
                    resumed ? resumed->pipeline_first : std::vector<std::int64_t>());
  }
  const Reduction algorithm = reduction_of(e.options);
  const bool scatter = e.share != nullptr && algorithm == Reduction::ring;
  e.sums = open_sums(e.device, e.summing_ranks(ranks), e.backend->queue(),
                     {algorithm,
                      e.batch.shards,
                      {},
                      hosts_of_sums(e),
                      scatter,
                      /*one_ring_if_uneven=*/!sums_uneven_hosts_in_two_levels(e.defaults)});
  choose_bucket_bytes(e, link, ranks.size(), resumed);
}

// What a resumed run with another number of shards does differently.
void note_changed_shards(const Experiment& e, const std::optional<TrainingState>& resumed, bool reports) {
  if (!resumed || !reports) return;
  if (const std::string text = changed_shards(e, *resumed); !text.empty()) log_info("resumed: {}", text);
}

// Data sets that fit into the device's memory stay there.
void keep_images(Experiment& e) {
  e.resident_train = make_resident(e.backend->queue(), *e.data.train, e.keeps_images);
  e.resident_test = make_resident(e.backend->queue(), *e.data.test, e.data.test->fixed());
}

void choose_sizes(Experiment& e, const ExperimentInputs& inputs) {
  const Shape full = e.data.train->shape();
  e.sizes = inputs.evaluated == nullptr ? progressive_sizes(e.options.data, full) : ProgressiveSizes(full);
  e.smaller = smaller_images(e);
}

// The whole network, which only evaluates where there is a pipeline, and those that train parts or other sizes of it.
void compile_networks(Experiment& e, const NetworkConfig& config) {
  NetworkConfig whole = config;
  whole.forward_only = e.place.stages > 1;
  e.network = std::make_unique<Network>(*e.backend, e.graph, whole, e.plan);
  build_networks(e, config);
}

// What a checkpoint says, or the latest.
int defaults_of(const ExperimentInputs& inputs) {
  if (inputs.evaluated != nullptr) return inputs.evaluated->defaults;
  return inputs.resumed ? inputs.resumed->defaults : kLatestDefaults;
}

// Collective. The batch of the options, in as many shards as the checkpoint of a resumed run says.
BatchOptions divided_batch(const MpiSession& session, const Options& options, const ExperimentInputs& inputs) {
  BatchOptions batch = options.batch;
  if (inputs.resumed) {
    batch.logical_shards = together(session, [&] { return resumed_shards(options, *inputs.resumed, session.size()); });
  }
  // Evaluations have no shards, whatever the configuration of the run says.
  const bool too_few = batch.logical_shards < session.size();
  if (inputs.evaluated != nullptr && too_few) batch.logical_shards = 0;
  return batch;
}

}  // namespace

Experiment prepare_experiment(const MpiSession& session, Communicator& ranks, const Device& device,
                              const Options& options, const ExperimentInputs& inputs) {
  // Before any collective work.
  check_same_on_all_ranks(ranks, options_fingerprint(options), ExitCode::preflight,
                          "start all ranks with the same program and options");
  const std::optional<TrainingState>& resumed = inputs.resumed;
  const auto phase = [&](auto&& work) { return together(session, work); };
  Experiment e;
  e.device = device;
  e.options = options;
  e.defaults = defaults_of(inputs);
  const BatchOptions batch = divided_batch(session, options, inputs);
  std::vector<Stage> stages;
  std::optional<ImportedModel> imported;
  // First the checks that need no data. Only rank 0 may have access to the file.
  const std::string onnx =
      phase([&] { return session.rank() == 0 ? read_model(options.model.model, inputs.model_copy) : std::string(); });
  e.onnx = ranks.broadcast_text(onnx, 0);
  e.onnx_hash = model_hash(e.onnx);
  phase([&] {
    check_gradient_precision(options);
    e.place = place_of(e, session.size(), session.rank());
    (void)resolve_batch(batch, session.size(), std::numeric_limits<std::int32_t>::max(), e.place.stages);
    open_data(e, inputs);
    e.batch = resolve_batch(batch, session.size(), e.data.train->size(), e.place.stages);
    if (resumed) {
      check_same_run(e.options, *resumed, e.batch);
      check_same_classes(e.data.train->class_names(), *resumed);
    }
    // Weights that are evaluated come with their number of classes.
    const bool replaces = options.model.new_classifier || inputs.evaluated != nullptr;
    NetworkSource source = make_network(options.model.model, e.onnx, e.data.train->shape(), e.data.train->classes(),
                                        {.new_classifier = replaces, .defaults = e.defaults});
    e.graph = std::move(source.graph);
    imported = std::move(source.imported);
    if (imported) e.file_constants = imported->constants;
    if (session.rank() != 0) e.onnx.clear();
    e.fingerprint = data_fingerprint(e.data, e.preprocessing.normalization);
    e.fingerprint.push_back(network_part(e.graph));
    if (inputs.evaluated == nullptr) connect_shards(e, session.size(), session.rank());
    if (resumed) {
      check_same_shards(e, *resumed);
      check_same_model(e, *resumed);
      check_same_data(e, *resumed);
    }
    freeze_parts(e, inputs.evaluated != nullptr);
    e.backend = open_backend(device);
    stages = make_stages(e.graph, e.batch.per_shard, e.backend->ops().takes_bias_into_norm());
    choose_sizes(e, inputs);
    if (inputs.evaluated == nullptr) avoid_single_values(e);
    if (resumed) check_same_epoch(e.batch, *resumed);
    check_parts(e.graph, possible_cuts(e.graph, stages), e.place.stages);
  });
  check_same_on_all_ranks(ranks, e.fingerprint, ExitCode::preflight, "use the same data on all ranks");
  NetworkConfig config = network_config(options, e.preprocessing, e.batch.per_shard);
  note_changed_shards(e, resumed, session.rank() == 0);
  choose_plans(session, ranks, e, stages, config, resumed);
  check_same_plan(ranks, e);
  e.fingerprint.push_back(kernels_part(*e.backend));
  if (inputs.evaluated == nullptr) e.share = share_state(ranks, e);
  phase([&] {
    e.plan = layout_plan_from_text(e.plan_text, stages);
    if (inputs.evaluated != nullptr) take_pixels(*inputs.evaluated, config);
    e.scale = config.scale;
    e.shift = config.shift;
    e.state_bytes = bytes_beside_activations(e);
    check_fits(*e.backend, e.graph, config, e.plan, e.state_bytes);
    config.plan_only = e.device.described.has_value();
    take_edits(e, config);
    compile_networks(e, config);
    if (config.plan_only) return;
    allocate_state(e);
    first_weights(e, imported, session.rank() == 0 && !resumed && inputs.evaluated == nullptr);
    keep_images(e);
  });
  if (e.device.described) return e;
  set_up_sums(session, ranks, e, config, stages, resumed);
  broadcast_floats(ranks, *e.host_parameters);
  e.statistics->broadcast(ranks);
  if (e.share) e.share->meet();
  return e;
}

}  // namespace ddp
