// All options of a run as plain structs with their defaults. Nothing here parses or validates.
//
//   Options options;                       // all defaults
//   options.optimizer.lr = 0.2;
//   if (options.distributed.reduction == Reduction::tree) ...
//
// A member is named like its key, with underscores: --weight-decay is optimizer.weight_decay.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/types/pictures.h"
#include "base/types/precision.h"
#include "base/types/reduction.h"
#include "base/types/update_rule.h"

namespace ddp {

// The global batch if no batch size is given.
inline constexpr std::int64_t kDefaultGlobalBatch = 256;

enum class InitKind { model, pytorch, normal, xavier, kaiming };
enum class DeviceChoice { automatic, cuda, cpu };
enum class GradientPrecision { fp32, bf16 };
enum class GraphMode { automatic, on, off };
enum class NormalizeMode { none, standard, imagenet };
// Fill for the border that random_crop_padding uncovers.
enum class CropFill { black, reflect };
// Which images random_flip mirrors; alternate: each image in every second epoch.
enum class FlipMode { off, on, alternate };
// What mixup and cutmix draw a weight for.
enum class MixPer { sample, batch };
enum class ImageChannels { rgb, grey };
enum class DecayKind { automatic, l2, decoupled };
enum class NoDecay { none, norm_and_bias };
// Statistics of batch normalisations whose parameters are all frozen: kept and used, or measured and updated as in others.
enum class FrozenStatistics { keep, update };
enum class RmspropForm { pytorch, keras };
enum class ScheduleKind { constant, step, multi_step, cosine, one_cycle, polynomial, exponential };
enum class Anneal { cosine, linear };
enum class ScheduleBy { automatic, epoch, step };
enum class LrScale { none, linear, sqrt };
enum class BindMode { automatic, none };
enum class EvalOn { rank0, all };
// The views of an image over which an evaluation averages (train/evaluation/eval_views.h).
enum class EvalViews { plain, mirror, mirror_shift };
enum class OnNonFinite { stop, skip, rollback };
enum class SaveFailure { retry, stop };
enum class ExportFormat { automatic, onnx, safetensors };
enum class PackFormat { jpeg, png };
enum class ProgressStyle { automatic, bar, lines, none };
enum class SummaryStyle { brief, full };

// A factor for the parameters whose names match a pattern, in which * is any text and ? any character.
struct PatternFactor {
  std::string pattern;
  double factor = 1;

  friend bool operator==(const PatternFactor&, const PatternFactor&) = default;
};
// The parameters that match, and the first epochs, in which they are trained; 0: not at all.
struct PatternEpochs {
  std::string pattern;
  double epochs = 0;

  friend bool operator==(const PatternEpochs&, const PatternEpochs&) = default;
};
// Height and width of images, in pixels.
struct ImageSides {
  std::int64_t height = 224;
  std::int64_t width = 224;

  friend bool operator==(const ImageSides&, const ImageSides&) = default;
};

struct RunOptions {
  std::string config;  // the configuration file, or empty
  LogLevel log_level = LogLevel::info;

  friend bool operator==(const RunOptions&, const RunOptions&) = default;
};

struct ModelOptions {
  std::string model = "lenet";
  InitKind init = InitKind::model;
  double init_std = 0.01;  // standard deviation of InitKind::normal
  Precision precision = Precision::fp32;
  std::string init_from;         // initial weights: a safetensors file, a checkpoint or a run folder; empty: see init
  bool new_classifier = false;   // with init_from or an ONNX file: reinitialize the last layer
  bool sync_batch_norm = false;  // statistics over the global batch

  friend bool operator==(const ModelOptions&, const ModelOptions&) = default;
};

struct DeviceOptions {
  DeviceChoice device = DeviceChoice::automatic;
  std::vector<int> gpus;               // ordinals among the visible GPUs, in the order of the local ranks; empty: all
  bool oversubscribe_gpus = false;     // allow ranks to share a GPU
  double gpu_memory_fraction = 1;      // fraction of GPU memory that a rank may use
  std::uint64_t gpu_memory_limit = 0;  // bytes; 0: no limit
  std::string gpu_description;         // a file that describes the GPU to plan for; empty: one that is here
  bool log_placement = false;
  GraphMode cuda_graph = GraphMode::automatic;
  int steps_in_flight = 0;  // begun before the host reads the result of the first; 0: by the device

  friend bool operator==(const DeviceOptions&, const DeviceOptions&) = default;
};

struct DataOptions {
  std::string dataset = "glyphs";
  std::string data_dir = "data";
  std::string val_dir;    // shards that evaluate
  std::string image_key;  // of the samples of shards; empty: by their names
  std::string label_key;
  int workers = 1;               // loader threads per rank; 0: load within the step
  int prefetch = 2;              // batches loaded ahead
  std::int64_t train_limit = 0;  // samples; 0: all
  std::int64_t test_limit = 0;
  NormalizeMode normalize = NormalizeMode::none;
  // Augmentation of training samples (data/pipeline/augmentation.h).
  bool random_resized_crop = false;
  std::int64_t random_crop_padding = 0;
  CropFill random_crop_fill = CropFill::black;
  FlipMode random_flip = FlipMode::off;
  std::array<double, 3> color_jitter = {0, 0, 0};  // of brightness, contrast, saturation
  std::int64_t repeat_augment = 1;                 // copies of a sample in a global batch
  std::int64_t cutout = 0;                         // side of the square; 0: none
  std::vector<int> rand_augment;                   // operations per image and their magnitude; empty: none
  bool trivial_augment = false;
  double random_erasing = 0;          // probability
  double mixup = 0;                   // both parameters of the Beta distribution; 0: off
  double cutmix = 0;                  // likewise
  MixPer mixup_per = MixPer::sample;  // of mixup and cutmix
  // The size of the first images (data/pipeline/progressive.h); not set: all have the full size.
  std::optional<ImageSides> progressive_size = std::nullopt;
  std::int64_t progressive_begin = 0;  // epochs at the first size before images grow
  std::int64_t progressive_end = 0;    // the first epoch, from 0, with images of the full size
  std::int64_t progressive_stages = 4;
  // Image folders.
  double val_split = 0.1;   // the share of an undivided folder that evaluates
  std::string labels;       // a list of images, or empty
  std::string fold;         // K/N instead, or empty
  std::string split_group;  // regex:EXPRESSION, a column of the list, or empty
  ImageSides image_size;
  ImageChannels image_channels = ImageChannels::rgb;
  std::optional<ImageSides> eval_size = std::nullopt;  // not set: image_size
  PictureResize resize = PictureResize::crop;
  std::optional<double> eval_crop = std::nullopt;  // not set: 0.875 for --resize crop, otherwise 1
  Interpolation interpolation = Interpolation::bilinear;
  bool exif_orientation = true;  // off in runs that an earlier version began
  bool fast_decode = false;      // in evaluation, too
  std::int64_t max_bad_samples = 0;
  std::string image_cache = "off";  // a folder or "off"

  friend bool operator==(const DataOptions&, const DataOptions&) = default;
};

// Whether samples are mixed, so that each has two labels.
inline bool mixes(const DataOptions& data) { return data.mixup > 0 || data.cutmix > 0; }

// At most one of the first three is set; resolve_batch (batch.h) turns them into a batch plan.
struct BatchOptions {
  std::optional<std::int64_t> global_batch = std::nullopt;    // samples over all ranks
  std::optional<std::int64_t> batch_per_rank = std::nullopt;  // samples per rank
  std::optional<std::int64_t> batch_size = std::nullopt;      // with a single rank only
  int logical_shards = 0;                                     // 0: the number of ranks
  bool balance = false;                                       // move shards from slow ranks to fast ones
  bool drop_last = false;                                     // drop the last, incomplete batch of an epoch

  friend bool operator==(const BatchOptions&, const BatchOptions&) = default;
};

inline constexpr double kMostLossScale = 16777216;  // 2^24

struct OptimizerOptions {
  UpdateRule optimizer = UpdateRule::sgd;
  double lr = 0.1;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  DecayKind decay = DecayKind::automatic;  // automatic: decoupled for adamw, L2 for sgd, adam and rmsprop
  NoDecay no_decay_on = NoDecay::none;
  std::vector<PatternFactor> lr_for;       // factors of the learning rate
  std::vector<PatternFactor> decay_for;    // factors of the weight decay
  std::vector<PatternEpochs> lr_fade_for;  // the learning rate falls linearly to 0 in these epochs
  std::vector<PatternEpochs> freeze;
  std::optional<FrozenStatistics> frozen_statistics = std::nullopt;  // not set: by the revision of the defaults
  double beta1 = 0.9;                                                // adam, adamw, lamb
  double beta2 = 0.999;
  double epsilon = 1e-8;  // adam, adamw, lamb, rmsprop
  double rho = 0.99;      // rmsprop
  RmspropForm rmsprop_form = RmspropForm::pytorch;
  double lars_trust = 0.001;
  double muon_momentum = 0.95;  // muon: of weights that are matrices
  std::int64_t muon_steps = 5;
  MuonScale muon_scale = MuonScale::shape;
  bool muon_normalize = false;
  double clip_norm = 0;   // bound on the gradient's global L2 norm; 0: off
  double clip_value = 0;  // bound on the magnitude of each component; 0: off
  double ema_decay = 0;   // decay rate of the moving average of the weights; 0: off
  bool ema_warmup = false;
  std::int64_t lookahead = 0;    // steps between pulls towards the slow weights; 0: off
  double lookahead_decay = 0.5;  // fraction of the slow weights that a pull keeps
  double lookahead_power = 0;    // the fraction grows with (step / steps)^power
  ScheduleKind schedule = ScheduleKind::constant;
  ScheduleBy schedule_by = ScheduleBy::automatic;  // automatic: by epoch for multi_step, by step for the others
  std::int64_t lr_step_epochs = 0;                 // step, exponential: epochs between decays
  std::int64_t lr_decay_steps = 0;                 // the same in steps
  std::vector<std::int64_t> lr_milestones;         // multi_step: epochs or steps, increasing
  double lr_gamma = 0.1;                           // step, multi_step, exponential: factor per decay
  bool lr_staircase = false;                       // exponential: decay in discrete steps
  double lr_min = 0;                               // cosine, polynomial: final learning rate
  double lr_power = 1;                             // polynomial: exponent
  Anneal one_cycle_anneal = Anneal::cosine;        // one_cycle: how the rate changes
  double one_cycle_rise = 0.3;                     // one_cycle: fraction of training in which it increases
  double one_cycle_div = 25;                       // one_cycle: peak lr / initial lr
  double one_cycle_final_div = 1e4;                // one_cycle: initial lr / final lr
  bool one_cycle_momentum = false;                 // one_cycle: cycle momentum (or beta1) inversely to lr
  double one_cycle_low_momentum = 0.85;
  double one_cycle_high_momentum = 0.95;
  double warmup_epochs = 0;  // linear warmup; may be fractional
  LrScale lr_scale = LrScale::none;
  std::int64_t lr_base_batch = 256;  // lr_scale: the global batch for which lr was chosen
  double label_smoothing = 0;
  double epochs = 10;          // may be fractional
  std::int64_t max_steps = 0;  // 0: no limit
  std::uint64_t seed = 1;
  OnNonFinite on_nonfinite = OnNonFinite::stop;
  std::int64_t nonfinite_limit = 10;        // steps that skip and rollback put up with
  double loss_scale = 65536;                // with fp16, at first; a power of two
  std::int64_t loss_scale_interval = 2000;  // steps after which it is doubled; 0: never
  bool deterministic = false;

  friend bool operator==(const OptimizerOptions&, const OptimizerOptions&) = default;
};

struct DistributedOptions {
  Reduction reduction = Reduction::ring;
  GradientPrecision gradient_precision = GradientPrecision::fp32;  // between ranks
  bool overlap = true;                                             // reduce gradients while backward still runs
  std::string split_linear = "none";                               // linear layers divided among the ranks: patterns
  int pipeline = 1;                                                // stages of a pipeline, on a rank each
  double first_bucket_mib = 1;
  double bucket_mib = 0;  // 0: by the measured link between the ranks of CPUs, 25 on GPUs
  int threads = 0;        // compute threads per rank; 0: an equal share of the cores
  BindMode bind = BindMode::automatic;
  double hang_timeout = 60;  // seconds of silence beyond the longest so far after which the job has hung
  double timeout = 600;      // seconds without any progress after which the job ends

  friend bool operator==(const DistributedOptions&, const DistributedOptions&) = default;
};

// Whether linear layers are divided among the ranks.
inline bool splits_linear(const DistributedOptions& distributed) { return distributed.split_linear != "none"; }

struct OutputOptions {
  std::string output;                 // the run folder; empty: see run_directory()
  std::string resume = "none";        // "none", "auto" or the path of a checkpoint
  std::int64_t checkpoint_every = 0;  // steps; 0: at the end of each epoch
  int keep_checkpoints = 3;
  SaveFailure on_checkpoint_failure = SaveFailure::retry;
  std::int64_t log_interval = 50;  // steps
  std::int64_t eval_every = 1;     // epochs; 0: only at the end
  EvalOn eval_on = EvalOn::rank0;
  EvalViews eval_views = EvalViews::plain;
  std::string plan_cache;  // "off" or a folder; empty: see plan_cache_directory()
  ProgressStyle progress = ProgressStyle::automatic;
  SummaryStyle summary = SummaryStyle::brief;
  bool trace = false;
  bool tensorboard = true;
  bool recording = true;  // of each step's times and fingerprints

  friend bool operator==(const OutputOptions&, const OutputOptions&) = default;
};

// Options of the command export.
struct ExportOptions {
  std::string run;                    // the run folder; empty: see run_directory()
  std::string checkpoint = "latest";  // "latest", "best" or the path of a checkpoint
  ExportFormat format = ExportFormat::automatic;
  std::string to;  // the output file
  StoredFloats precision = StoredFloats::fp32;
  bool average = false;          // export the moving average of the weights
  bool fold_batch_norm = false;  // into the layers before, for ONNX

  friend bool operator==(const ExportOptions&, const ExportOptions&) = default;
};

// Options of the command pack.
struct PackOptions {
  std::int64_t size = 512;  // pixels of the shorter side at most; 0: any
  PackFormat format = PackFormat::jpeg;
  int quality = 90;  // of JPEG
  std::int64_t shard_mib = 256;

  friend bool operator==(const PackOptions&, const PackOptions&) = default;
};

// Options of the command bench.
struct BenchOptions {
  bool on_request = false;  // time steps for each line on standard input
  bool stages = false;      // print the speed of each stage, too

  friend bool operator==(const BenchOptions&, const BenchOptions&) = default;
};

// Options of the command sweep.
struct SweepOptions {
  std::vector<std::string> axes = {};  // "KEY=VALUES", in the order of the command line
  std::string list = {};               // a file with one setting per line; empty: none
  std::int64_t draws = 0;              // random settings; 0: the whole grid
  int ranks_per_trial = 1;
  std::int64_t halving = 0;         // successive halving: after each rung the best 1/N continue; 0: off
  std::int64_t halving_epochs = 1;  // the first rung
  std::int64_t max_trials = 1000;   // a larger grid is an error

  friend bool operator==(const SweepOptions&, const SweepOptions&) = default;
};

// Options of the command explain.
struct ExplainOptions {
  std::int64_t verify = 0;  // steps for which the best cure is tried; 0: not at all
  bool probe = true;        // measure what the records of the run do not tell

  friend bool operator==(const ExplainOptions&, const ExplainOptions&) = default;
};

// Options of the command scaling.
struct ScalingOptions {
  double seconds = 6;  // of training, for each number of ranks

  friend bool operator==(const ScalingOptions&, const ScalingOptions&) = default;
};

// The keys of options that a user gave, which take precedence over the configuration of a stored run.
struct GivenKeys {
  std::vector<std::string> keys;
  bool has(std::string_view key) const { return std::find(keys.begin(), keys.end(), key) != keys.end(); }
  // Options with the same values are equal, whether given by the user or not.
  friend bool operator==(const GivenKeys&, const GivenKeys&) { return true; }
};

struct Options {
  std::string command = "train";  // train, eval, plan, bench, check, devices, export, replay, explain, compare,
                                  // report, scaling or sweep
  RunOptions run;
  ModelOptions model;
  DeviceOptions device;
  DataOptions data;
  BatchOptions batch;
  OptimizerOptions optimizer;
  DistributedOptions distributed;
  OutputOptions output;
  ExportOptions exported;
  PackOptions pack;
  BenchOptions bench;
  SweepOptions sweep;
  ExplainOptions explain;
  ScalingOptions scaling;
  std::vector<std::string> folders;  // those that the commands replay, explain, compare and report are given
  std::string help_topic;            // with help: the topic, or empty for the overview
  bool help = false;
  bool version = false;
  bool dump_config = false;
  bool json = false;  // eval: one line of JSON in place of tables
  GivenKeys given;    // on the command line and in --config

  friend bool operator==(const Options&, const Options&) = default;
};

// The checkpoint for eval and export: --checkpoint of --run, else --resume, else the newest one in the run folder.
std::filesystem::path chosen_checkpoint(const Options& options);

// --format, or the format implied by the extension of --to.
ExportFormat format_of(const ExportOptions& options);

// The run folder: --output with %j, %A and %a expanded from Slurm's variables, or runs/MODEL-DATASET.
// Throws Error(usage) for an unknown placeholder or a variable that Slurm has not set.
std::filesystem::path run_directory(const Options& options);

// `path` as a value of --output, which stands for exactly this path: % is doubled.
std::string literal_output(const std::filesystem::path& path);

// $XDG_CACHE_HOME/ddp_train/WHAT, or ~/.cache/ddp_train/WHAT; nothing if neither HOME nor XDG_CACHE_HOME is set.
std::optional<std::filesystem::path> cache_directory(const std::string& what);

// The cache of execution plans: --plan-cache, or cache_directory("plans"). Nothing if it is off or there is no such folder.
std::optional<std::filesystem::path> plan_cache_directory(const Options& options);

// The names of an enum's values on the command line, in the order of the enum.
constexpr auto enum_names(LogLevel) { return std::to_array<std::string_view>({"debug", "info", "warning", "error"}); }
constexpr auto enum_names(InitKind) {
  return std::to_array<std::string_view>({"default", "pytorch", "normal", "xavier", "kaiming"});
}
constexpr auto enum_names(Precision) { return std::to_array<std::string_view>({"fp32", "tf32", "bf16", "fp16"}); }
constexpr auto enum_names(DeviceChoice) { return std::to_array<std::string_view>({"auto", "cuda", "cpu"}); }
constexpr auto enum_names(GradientPrecision) { return std::to_array<std::string_view>({"fp32", "bf16"}); }
constexpr auto enum_names(GraphMode) { return std::to_array<std::string_view>({"auto", "on", "off"}); }
constexpr auto enum_names(NormalizeMode) { return std::to_array<std::string_view>({"none", "standard", "imagenet"}); }
constexpr auto enum_names(CropFill) { return std::to_array<std::string_view>({"black", "reflect"}); }
constexpr auto enum_names(Interpolation) { return std::to_array<std::string_view>({"bilinear", "bicubic"}); }
constexpr auto enum_names(PictureResize) { return std::to_array<std::string_view>({"crop", "squash", "pad"}); }
constexpr auto enum_names(FlipMode) { return std::to_array<std::string_view>({"off", "on", "alternate"}); }
constexpr auto enum_names(MixPer) { return std::to_array<std::string_view>({"sample", "batch"}); }
constexpr auto enum_names(EvalViews) { return std::to_array<std::string_view>({"plain", "mirror", "mirror-shift"}); }
constexpr auto enum_names(ImageChannels) { return std::to_array<std::string_view>({"3", "1"}); }
constexpr auto enum_names(UpdateRule) {
  return std::to_array<std::string_view>({"sgd", "adam", "adamw", "rmsprop", "lars", "lamb", "muon"});
}
constexpr auto enum_names(MuonScale) { return std::to_array<std::string_view>({"shape", "rms", "none"}); }
constexpr auto enum_names(DecayKind) { return std::to_array<std::string_view>({"auto", "l2", "decoupled"}); }
constexpr auto enum_names(NoDecay) { return std::to_array<std::string_view>({"none", "norm-and-bias"}); }
constexpr auto enum_names(FrozenStatistics) { return std::to_array<std::string_view>({"keep", "update"}); }
constexpr auto enum_names(RmspropForm) { return std::to_array<std::string_view>({"pytorch", "keras"}); }
constexpr auto enum_names(ScheduleKind) {
  return std::to_array<std::string_view>(
      {"constant", "step", "multi-step", "cosine", "one-cycle", "polynomial", "exponential"});
}
constexpr auto enum_names(Anneal) { return std::to_array<std::string_view>({"cos", "linear"}); }
constexpr auto enum_names(ScheduleBy) { return std::to_array<std::string_view>({"auto", "epoch", "step"}); }
constexpr auto enum_names(LrScale) { return std::to_array<std::string_view>({"none", "linear", "sqrt"}); }
constexpr auto enum_names(Reduction) { return std::to_array<std::string_view>({"ring", "tree", "root"}); }
constexpr auto enum_names(BindMode) { return std::to_array<std::string_view>({"auto", "none"}); }
constexpr auto enum_names(OnNonFinite) { return std::to_array<std::string_view>({"stop", "skip", "rollback"}); }
constexpr auto enum_names(EvalOn) { return std::to_array<std::string_view>({"rank0", "all"}); }
constexpr auto enum_names(SaveFailure) { return std::to_array<std::string_view>({"retry", "stop"}); }
constexpr auto enum_names(StoredFloats) { return std::to_array<std::string_view>({"fp32", "fp16", "bf16"}); }
constexpr auto enum_names(ExportFormat) { return std::to_array<std::string_view>({"auto", "onnx", "safetensors"}); }
constexpr auto enum_names(PackFormat) { return std::to_array<std::string_view>({"jpeg", "png"}); }
constexpr auto enum_names(SummaryStyle) { return std::to_array<std::string_view>({"short", "full"}); }
constexpr auto enum_names(ProgressStyle) { return std::to_array<std::string_view>({"auto", "bar", "lines", "none"}); }

template <class E>
concept Choice = requires(E value) {
  enum_names(value);
};

// The name of `value` on the command line: to_string(Reduction::ring) is "ring".
template <Choice E>
constexpr std::string_view to_string(E value) {
  return enum_names(value)[static_cast<std::size_t>(value)];
}

}  // namespace ddp
