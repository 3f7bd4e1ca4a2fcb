#include "options/check.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text/text.h"
#include "base/types/fold.h"
#include "options/batch.h"

namespace ddp {
namespace {

// `given`: the option differs from its default. `kinds`: the optimizers or schedules that use it.
template <class Kind>
void check_read_by(const char* key, bool given, const char* choice, Kind kind, std::initializer_list<Kind> kinds) {
  if (!given || std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return;
  std::vector<std::string> names;
  for (const Kind each : kinds) names.emplace_back(to_string(each));
  throw Error(ExitCode::usage, fmt::format("--{} has no effect with --{} {}, only with {}; remove it", key, choice,
                                           to_string(kind), join(names)));
}

void check_one_cycle_momentum(const OptimizerOptions& o) {
  const OptimizerOptions standard;
  const bool bounds = o.one_cycle_low_momentum != standard.one_cycle_low_momentum ||
                      o.one_cycle_high_momentum != standard.one_cycle_high_momentum;
  check(!bounds || o.one_cycle_momentum, ExitCode::usage,
        "--one-cycle-low-momentum and --one-cycle-high-momentum require --one-cycle-momentum");
  if (!o.one_cycle_momentum) return;
  check(o.momentum == standard.momentum && o.beta1 == standard.beta1, ExitCode::usage,
        "--{} has no effect with --one-cycle-momentum, which cycles it between --one-cycle-high-momentum {} and "
        "--one-cycle-low-momentum {}; remove it",
        o.beta1 == standard.beta1 ? "momentum" : "beta1", o.one_cycle_high_momentum, o.one_cycle_low_momentum);
  check(o.one_cycle_low_momentum <= o.one_cycle_high_momentum, ExitCode::usage,
        "--one-cycle-low-momentum {} is greater than --one-cycle-high-momentum {}", o.one_cycle_low_momentum,
        o.one_cycle_high_momentum);
}

void check_split_linear(const Options& options) {
  check(
      !options.optimizer.deterministic, ExitCode::usage,
      "--split-linear cannot be combined with --deterministic: gradients of activations are summed over the ranks, and "
      "the bits depend on their number; remove one of the two");
  check(options.optimizer.optimizer != UpdateRule::muon, ExitCode::usage,
        "--split-linear cannot be combined with --optimizer muon, which updates whole weights; remove one of the two");
  check(!options.batch.balance, ExitCode::usage,
        "--split-linear requires as many logical shards on each rank, but --balance moves them; remove one of the two");
}

void check_pipeline(const Options& options) {
  const std::string& command = options.command;
  check(command != "bench" && command != "check" && command != "scaling" && command != "explain", ExitCode::usage,
        "--pipeline applies to the commands train, sweep and plan only; remove it");
  const auto refuse = [](bool given, std::string_view option, std::string_view reason) {
    check(!given, ExitCode::usage, "--pipeline cannot be combined with {}, {}; remove one of the two", option, reason);
  };
  refuse(splits_linear(options.distributed), "--split-linear", "which divides the same ranks in another way");
  refuse(options.model.sync_batch_norm, "--sync-batch-norm", "as the shards of a replica are not at a layer together");
  refuse(options.batch.balance, "--balance on", "as all stages of a replica process the same shards");
  refuse(options.data.progressive_size.has_value(), "--progressive-size", "which has a network for each size");
  refuse(options.data.eval_size.has_value(), "--eval-size", "which has a network for each size");
  refuse(options.device.steps_in_flight > 1, "--steps-in-flight of more than 1", "as the stages wait for each other");
}

void check_optimizer(const OptimizerOptions& o) {
  using K = UpdateRule;
  const OptimizerOptions standard;
  const auto read_by = [&](const char* key, auto OptimizerOptions::*member, std::initializer_list<K> kinds) {
    check_read_by(key, o.*member != standard.*member, "optimizer", o.optimizer, kinds);
  };
  read_by("momentum", &OptimizerOptions::momentum, {K::sgd, K::rmsprop, K::lars, K::muon});
  read_by("nesterov", &OptimizerOptions::nesterov, {K::sgd, K::muon});
  check(!o.nesterov || o.momentum > 0 || o.one_cycle_momentum, ExitCode::usage,
        "--nesterov requires --momentum > 0, such as 0.9");
  read_by("beta1", &OptimizerOptions::beta1, {K::adam, K::adamw, K::lamb});
  read_by("beta2", &OptimizerOptions::beta2, {K::adam, K::adamw, K::lamb});
  read_by("epsilon", &OptimizerOptions::epsilon, {K::adam, K::adamw, K::lamb, K::rmsprop});
  read_by("rho", &OptimizerOptions::rho, {K::rmsprop});
  read_by("rmsprop-form", &OptimizerOptions::rmsprop_form, {K::rmsprop});
  read_by("lars-trust", &OptimizerOptions::lars_trust, {K::lars});
  read_by("muon-momentum", &OptimizerOptions::muon_momentum, {K::muon});
  read_by("muon-steps", &OptimizerOptions::muon_steps, {K::muon});
  read_by("muon-scale", &OptimizerOptions::muon_scale, {K::muon});
  read_by("muon-normalize", &OptimizerOptions::muon_normalize, {K::muon});
  check(o.optimizer != K::adamw || o.decay != DecayKind::l2, ExitCode::usage,
        "--optimizer adamw implies --decay decoupled; for --decay l2 use --optimizer adam");
  check((o.optimizer != K::lars && o.optimizer != K::lamb) || o.decay == DecayKind::automatic, ExitCode::usage,
        "--optimizer {} defines its own weight decay; remove --decay {}", to_string(o.optimizer), to_string(o.decay));
  check(o.clip_norm == 0 || o.clip_value == 0, ExitCode::usage, "--clip-norm and --clip-value are mutually exclusive");
  check(o.optimizer != K::lars || o.clip_value == 0, ExitCode::usage,
        "--optimizer lars does not support --clip-value, since its rates depend on the gradient norm; remove it");
  check(o.nonfinite_limit == standard.nonfinite_limit || o.on_nonfinite != OnNonFinite::stop, ExitCode::usage,
        "--nonfinite-limit has no effect with --on-nonfinite stop, only with skip, rollback; remove it");
  check(!o.frozen_statistics || !o.freeze.empty(), ExitCode::usage,
        "--frozen-statistics has no effect without --freeze, such as --freeze 'features.*'; remove it");
  check(!o.ema_warmup || o.ema_decay > 0, ExitCode::usage, "--ema-warmup requires --ema-decay > 0, such as 0.999");
  check(o.lookahead > 0 || (o.lookahead_decay == standard.lookahead_decay && o.lookahead_power == 0), ExitCode::usage,
        "--lookahead-decay and --lookahead-power require --lookahead > 0, such as 5");
}

void check_schedule(const OptimizerOptions& o) {
  using K = ScheduleKind;
  const OptimizerOptions standard;
  const auto read_by = [&](const char* key, auto OptimizerOptions::*member, std::initializer_list<K> kinds) {
    check_read_by(key, o.*member != standard.*member, "schedule", o.schedule, kinds);
  };
  read_by("lr-decay-steps", &OptimizerOptions::lr_decay_steps, {K::step, K::exponential});
  read_by("lr-milestones", &OptimizerOptions::lr_milestones, {K::multi_step});
  read_by("lr-staircase", &OptimizerOptions::lr_staircase, {K::exponential});
  read_by("lr-power", &OptimizerOptions::lr_power, {K::polynomial});
  read_by("one-cycle-anneal", &OptimizerOptions::one_cycle_anneal, {K::one_cycle});
  read_by("one-cycle-rise", &OptimizerOptions::one_cycle_rise, {K::one_cycle});
  read_by("one-cycle-div", &OptimizerOptions::one_cycle_div, {K::one_cycle});
  read_by("one-cycle-final-div", &OptimizerOptions::one_cycle_final_div, {K::one_cycle});
  read_by("one-cycle-momentum", &OptimizerOptions::one_cycle_momentum, {K::one_cycle});
  check_one_cycle_momentum(o);
  const bool decays = o.schedule == K::step || o.schedule == K::exponential;
  check(!decays || o.lr_step_epochs > 0 || o.lr_decay_steps > 0, ExitCode::usage,
        "--schedule {} requires --lr-step-epochs (epochs between decays) or --lr-decay-steps", to_string(o.schedule));
  check(!decays || o.lr_step_epochs == 0 || o.lr_decay_steps == 0, ExitCode::usage,
        "--lr-step-epochs and --lr-decay-steps are mutually exclusive");
  check(o.schedule != K::multi_step || !o.lr_milestones.empty(), ExitCode::usage,
        "--schedule multi-step requires --lr-milestones, such as 30,60");
  const bool falls = o.schedule == K::cosine || o.schedule == K::polynomial;
  check(!falls || o.lr_min <= o.lr, ExitCode::usage,
        "--lr-min {} is greater than --lr {}; a {} schedule decreases from --lr to --lr-min", o.lr_min, o.lr,
        to_string(o.schedule));
}

void check_split(const DataOptions& o) {
  check(o.labels.empty() || o.dataset == "folder", ExitCode::usage, "--labels requires --dataset folder, not {}",
        o.dataset);
  check(o.val_split > 0 && o.val_split < 1, ExitCode::usage,
        "--val-split is {:g}; give a share of the images between 0 and 1, such as 0.1", o.val_split);
  (void)parse_fold(o.fold);
  check(o.fold.empty() || o.val_split == DataOptions().val_split, ExitCode::usage,
        "--fold {} says which images evaluate, and so does --val-split {:g}; remove one of the two", o.fold,
        o.val_split);
  check(o.split_group.empty() || o.split_group.starts_with("regex:") || !o.labels.empty(), ExitCode::usage,
        "--split-group {} is neither a column of --labels nor regex: and a regular expression, such as "
        "regex:patient_([0-9]+)",
        o.split_group);
}

void check_preprocessing(const DataOptions& o) {
  check(!o.eval_crop || o.resize != PictureResize::pad, ExitCode::usage,
        "--eval-crop has no effect with --resize pad, which shows all of an image; remove one of the two");
  if (!o.eval_size) return;
  check(
      !o.progressive_size, ExitCode::usage,
      "--eval-size cannot be combined with --progressive-size, whose last size is --image-size; remove one of the two");
  check(o.eval_size->height >= o.image_size.height && o.eval_size->width >= o.image_size.width, ExitCode::usage,
        "--eval-size {}x{} is below --image-size {}x{}; give the larger size to --eval-size", o.eval_size->height,
        o.eval_size->width, o.image_size.height, o.image_size.width);
  check(o.dataset == "folder" || o.dataset == "synthetic", ExitCode::usage,
        "--eval-size works with --dataset folder and synthetic, as the images of {} have one size; remove it",
        o.dataset);
}

void check_progressive(const DataOptions& o) {
  const DataOptions standard;
  const bool others = o.progressive_begin != standard.progressive_begin ||
                      o.progressive_end != standard.progressive_end ||
                      o.progressive_stages != standard.progressive_stages;
  check(o.progressive_size || !others, ExitCode::usage,
        "--progressive-begin, --progressive-end and --progressive-stages require --progressive-size");
  check(!o.progressive_size || o.progressive_end > o.progressive_begin, ExitCode::usage,
        "--progressive-size requires --progressive-end, the number of epochs before images have the full size, greater "
        "than --progressive-begin {}",
        o.progressive_begin);
}

void check_loss_scale(const Options& options) {
  const OptimizerOptions standard;
  const OptimizerOptions& o = options.optimizer;
  const bool given = o.loss_scale != standard.loss_scale || o.loss_scale_interval != standard.loss_scale_interval;
  check(!given || options.model.precision == Precision::fp16, ExitCode::usage,
        "--loss-scale and --loss-scale-interval have no effect with --precision {}, only with fp16; remove them",
        to_string(options.model.precision));
  const auto whole = static_cast<std::uint64_t>(o.loss_scale);
  check(static_cast<double>(whole) == o.loss_scale && std::has_single_bit(whole), ExitCode::usage,
        "--loss-scale {} is not a power of two, which changes no digit of a gradient; use {}", o.loss_scale,
        std::bit_floor(whole));
}

void check_export(const Options& options) {
  check(options.command != "export" || !options.exported.to.empty(), ExitCode::usage,
        "export requires --to FILE, the output file");
  const ExportOptions& exported = options.exported;
  const bool named_onnx = exported.to.ends_with(".onnx");
  const bool named_weights = exported.to.ends_with(".safetensors");
  check(!(named_weights && exported.format == ExportFormat::onnx) &&
            !(named_onnx && exported.format == ExportFormat::safetensors),
        ExitCode::usage,
        "--to {} has the extension of another format than --format {}; remove --format or rename the file", exported.to,
        to_string(exported.format));
  check(options.command != "export" || exported.format != ExportFormat::automatic || named_onnx || named_weights,
        ExitCode::usage, "--to {} ends in neither .onnx nor .safetensors; rename it or set --format", exported.to);
  check(!exported.fold_batch_norm || format_of(exported) == ExportFormat::onnx, ExitCode::usage,
        "--fold-batch-norm requires --format onnx; a safetensors file contains every layer");
}

void check_augmentation(const DataOptions& data) {
  const std::vector<int>& rand_augment = data.rand_augment;
  check(rand_augment.empty() ||
            (rand_augment.size() == 2 && rand_augment[0] > 0 && rand_augment[0] <= 14 && rand_augment[1] <= 30),
        ExitCode::usage,
        "--rand-augment requires a number of operations from 1 to 14 and a magnitude from 0 to 30, such as 2,9");
  check(data.random_crop_fill == CropFill::black || data.random_crop_padding > 0, ExitCode::usage,
        "--random-crop-fill requires --random-crop-padding > 0");
  check(data.mixup_per == MixPer::sample || mixes(data), ExitCode::usage, "--mixup-per requires --mixup or --cutmix");
}

void check_gpu_description(const Options& options) {
  const DeviceOptions& device = options.device;
  check(device.gpu_description.empty() || options.command == "plan", ExitCode::usage,
        "--gpu-description applies to the command plan only: nothing runs on a GPU that is only described");
  check(device.gpu_description.empty() || device.device != DeviceChoice::cpu, ExitCode::usage,
        "--gpu-description has no effect with --device cpu; remove one of the two");
}

}  // namespace

void check_combinations(const Options& options) {
  const OptimizerOptions& o = options.optimizer;
  check_optimizer(o);
  check_schedule(o);
  check_split(options.data);
  check_preprocessing(options.data);
  check_progressive(options.data);
  check_loss_scale(options);
  check(o.warmup_epochs <= o.epochs, ExitCode::usage, "--warmup-epochs {} is greater than --epochs {}", o.warmup_epochs,
        o.epochs);
  check(!options.model.new_classifier || !options.model.init_from.empty() || options.model.model.ends_with(".onnx"),
        ExitCode::usage,
        "--new-classifier requires --init-from or --model FILE.onnx, which initializes the other layers");
  check(!options.model.sync_batch_norm || !options.batch.balance, ExitCode::usage,
        "--sync-batch-norm requires one logical shard per rank, --balance on more of them");
  check(!options.batch.balance || options.device.steps_in_flight <= 1, ExitCode::usage,
        "--balance on cannot be combined with --steps-in-flight of more than 1, as shards are moved between steps; "
        "remove one of the two");
  if (splits_linear(options.distributed)) check_split_linear(options);
  if (options.distributed.pipeline > 1) check_pipeline(options);
  check_export(options);
  check_augmentation(options.data);
  check_gpu_description(options);
  check_batch_choice(options.batch);
}

}  // namespace ddp
