#include "options/table/effects.h"

#include <algorithm>
#include <array>

namespace ddp {
namespace {

struct KeyEffects {
  std::string_view key;
  OptionEffects effects;
};

// NOLINTNEXTLINE(readability-function-size): a table
constexpr auto effects_table() {
  using enum Effect;
  // Other kernels, or another order of additions.
  constexpr OptionEffects kAdditions = rounding | gradient;
  // Other numbers of bits: up to percents of a gradient's norm.
  constexpr OptionEffects kPrecision = loss | gradient | rounding;
  return std::to_array<KeyEffects>({
      {"config", nothing},
      {"dump-config", nothing},
      {"json", nothing},
      {"help", nothing},
      {"version", nothing},
      {"log-level", nothing},

      {"model", weights | loss | gradient},
      {"init", weights},
      {"init-std", weights},
      {"init-from", weights},
      {"new-classifier", weights},
      {"sync-batch-norm", kShardEffects},
      {"precision", kPrecision},

      {"device", kPrecision},
      {"gpus", rounding},
      {"oversubscribe-gpus", nothing},
      {"gpu-memory-fraction", rounding},
      {"gpu-memory-limit", rounding},
      {"gpu-description", nothing},
      {"log-placement", nothing},
      {"cuda-graph", nothing},
      {"steps-in-flight", nothing},

      {"dataset", kDataEffects},
      {"data-dir", kDataEffects},
      {"val-dir", kDataEffects},
      {"image-key", kDataEffects},
      {"label-key", kDataEffects},
      {"workers", nothing},
      {"prefetch", nothing},
      {"train-limit", samples | pixels},
      {"test-limit", evaluation},
      {"normalize", loss | gradient | evaluation},
      {"random-resized-crop", pixels | loss},
      {"random-crop-padding", pixels | loss},
      {"random-crop-fill", pixels | loss},
      {"random-flip", pixels | loss},
      {"rand-augment", pixels | loss},
      {"trivial-augment", pixels | loss},
      {"color-jitter", pixels | loss},
      {"repeat-augment", samples | pixels | loss},
      {"cutout", pixels | loss},
      {"random-erasing", pixels | loss},
      {"mixup", pixels | loss},
      {"cutmix", pixels | loss},
      {"mixup-per", pixels | loss},
      {"labels", kDataEffects},
      {"val-split", samples | pixels | evaluation},
      {"fold", samples | pixels | evaluation},
      {"split-group", samples | pixels | evaluation},
      {"image-size", pixels | loss | evaluation},
      {"progressive-size", pixels | loss},
      {"progressive-begin", pixels | loss},
      {"progressive-end", pixels | loss},
      {"progressive-stages", pixels | loss},
      {"image-channels", pixels | loss | evaluation},
      {"eval-size", pixels | loss | evaluation},
      {"resize", pixels | loss | evaluation},
      {"eval-crop", pixels | loss | evaluation},
      {"interpolation", pixels | loss | evaluation},
      {"exif-orientation", pixels | loss | evaluation},
      {"fast-decode", evaluation},
      {"max-bad-samples", samples | pixels},
      {"image-cache", pixels},

      {"global-batch", samples},
      {"batch-per-rank", samples},
      {"batch-size", samples},
      {"logical-shards", kShardEffects},
      {"balance", rounding},
      {"drop-last", samples | rate},

      {"optimizer", update},
      {"lr", rate},
      {"momentum", update},
      {"nesterov", update},
      {"beta1", update},
      {"beta2", update},
      {"rho", update},
      {"epsilon", update},
      {"rmsprop-form", update},
      {"lars-trust", update},
      {"muon-momentum", update},
      {"muon-steps", update},
      {"muon-scale", update},
      {"muon-normalize", update},
      {"weight-decay", update},
      {"decay", update},
      {"no-decay-on", update},
      {"lr-for", update},
      {"decay-for", update},
      {"lr-fade-for", update},
      {"freeze", loss | gradient | rounding | statistics | update},
      {"frozen-statistics", loss | gradient | statistics},
      {"clip-norm", update},
      {"clip-value", update},
      {"ema-decay", evaluation},
      {"ema-warmup", evaluation},
      {"lookahead", update},
      {"lookahead-decay", update},
      {"lookahead-power", update},
      {"schedule", rate},
      {"schedule-by", rate},
      {"lr-step-epochs", rate},
      {"lr-decay-steps", rate},
      {"lr-milestones", rate},
      {"lr-gamma", rate},
      {"lr-staircase", rate},
      {"lr-min", rate},
      {"lr-power", rate},
      {"one-cycle-anneal", rate | update},
      {"one-cycle-rise", rate | update},
      {"one-cycle-div", rate},
      {"one-cycle-final-div", rate},
      {"one-cycle-momentum", update},
      {"one-cycle-low-momentum", update},
      {"one-cycle-high-momentum", update},
      {"warmup-epochs", rate},
      {"lr-scale", rate},
      {"lr-base-batch", rate},
      {"label-smoothing", loss | gradient},
      // The length of the schedule, of a fade or freeze in epochs, and of Lookahead.
      {"epochs", rate | update},
      {"max-steps", nothing},
      {"seed", samples | pixels | weights | loss},
      {"on-nonfinite", update},
      {"nonfinite-limit", nothing},
      {"loss-scale", gradient | rounding},
      {"loss-scale-interval", gradient | rounding},
      {"deterministic", kAdditions},

      {"reduction", kAdditions},
      {"gradient-precision", gradient | rounding},
      {"overlap", nothing},
      {"split-linear", kAdditions},
      {"pipeline", kShardEffects},
      {"first-bucket-mib", kAdditions},
      {"bucket-mib", kAdditions},
      {"threads", kAdditions},
      {"bind", nothing},
      {"hang-timeout", nothing},
      {"timeout", nothing},

      {"output", nothing},
      {"resume", nothing},
      {"checkpoint-every", nothing},
      {"keep-checkpoints", nothing},
      {"on-checkpoint-failure", nothing},
      {"log-interval", nothing},
      {"eval-every", nothing},
      {"eval-on", nothing},
      {"eval-views", evaluation},
      {"plan-cache", rounding},
      {"trace", nothing},
      {"tensorboard", nothing},
      {"recording", nothing},
      {"progress", nothing},
      {"summary", nothing},

      {"run", nothing},
      {"checkpoint", nothing},
      {"format", nothing},
      {"to", nothing},
      {"average", nothing},
      {"export-precision", nothing},
      {"fold-batch-norm", nothing},
      {"pack-size", nothing},
      {"pack-format", nothing},
      {"pack-quality", nothing},
      {"shard-mib", nothing},
      {"on-request", nothing},
      {"stages", nothing},
      {"sweep", nothing},
      {"sweep-list", nothing},
      {"sweep-draws", nothing},
      {"ranks-per-trial", nothing},
      {"sweep-halving", nothing},
      {"sweep-halving-epochs", nothing},
      {"sweep-max-trials", nothing},
      {"verify", nothing},
      {"probe", nothing},
      {"scaling-seconds", nothing},
  });
}

constexpr auto kEffects = effects_table();

}  // namespace

std::optional<OptionEffects> effects_of(std::string_view key) {
  const auto* const found =
      std::find_if(kEffects.begin(), kEffects.end(), [key](const KeyEffects& each) { return each.key == key; });
  return found == kEffects.end() ? std::nullopt : std::optional(found->effects);
}

}  // namespace ddp
