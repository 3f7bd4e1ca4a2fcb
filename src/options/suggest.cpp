// Suggestions for misspelled keys.
#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "options/table.h"

namespace ddp {
namespace {

// Names that other programs use for the same options.
constexpr auto kElsewhere = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"learning-rate", "lr"},
    {"wd", "weight-decay"},
    {"l2", "weight-decay"},
    {"num-workers", "workers"},
    {"num-epochs", "epochs"},
    {"batch", "global-batch"},
    {"bs", "global-batch"},
    {"data", "data-dir"},
    {"root", "data-dir"},
    {"arch", "model"},
    {"optim", "optimizer"},
    {"scheduler", "schedule"},
    {"lr-scheduler", "schedule"},
    {"save-dir", "output"},
    {"output-dir", "output"},
    {"pretrained", "init-from"},
    {"random-seed", "seed"},
    {"gpu", "gpus"},
    {"gpu-ids", "gpus"},
    {"dtype", "precision"},
    {"amp", "precision"},
    {"fp16", "precision"},
    {"bf16", "precision"},
    {"init-scale", "loss-scale"},
    {"growth-interval", "loss-scale-interval"},
    {"alpha", "rho"},
    {"eps", "epsilon"},
    {"ema", "ema-decay"},
    {"clip-grad", "clip-norm"},
    {"clipnorm", "clip-norm"},
    {"clipvalue", "clip-value"},
    {"pct-start", "one-cycle-rise"},
    {"cycle-momentum", "one-cycle-momentum"},
    {"base-momentum", "one-cycle-low-momentum"},
    {"max-momentum", "one-cycle-high-momentum"},
    {"milestones", "lr-milestones"},
    {"max-grad-norm", "clip-norm"},
    {"img-size", "image-size"},
    {"hflip", "random-flip"},
    {"mixup-alpha", "mixup"},
    {"cutmix-alpha", "cutmix"},
});

}  // namespace

std::string suggest_key(std::span<const OptionSpec> table, std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  std::string meant(word);
  std::replace(meant.begin(), meant.end(), '_', '-');
  if (meant.size() < 2) return "";
  if (find_option(table, meant) != nullptr) return meant;
  for (const auto& [elsewhere, key] : kElsewhere) {
    if (meant == elsewhere) return std::string(key);
  }
  std::vector<std::string> keys;
  keys.reserve(table.size());
  for (const OptionSpec& spec : table) keys.emplace_back(spec.key);
  return nearest(meant, keys);
}

}  // namespace ddp
