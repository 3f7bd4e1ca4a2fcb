#include "explain/compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace ddp {
namespace {

// Relative differences up to this are another order of additions in fp32.
constexpr double kRoundingDifference = 1e-5;

bool same_number(double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); }

double relative(double x, double y) {
  if (same_number(x, y)) return 0;
  const double size = std::max(std::abs(x), std::abs(y));
  return std::isfinite(size) ? std::abs(x - y) / size : 1;
}

// In the order in which a step computes them.
DifferenceKind kind_of(const StepRecord& a, const StepRecord& b, bool divided) {
  if (a.samples != b.samples) return DifferenceKind::data_order;
  // Images that a device keeps or edits are not hashed.
  if (a.pixels != b.pixels && a.pixels != 0 && b.pixels != 0) return DifferenceKind::augmentation;
  if (a.lr != b.lr) return DifferenceKind::schedule;
  if (!same_number(a.loss, b.loss)) {
    return relative(a.loss, b.loss) < kRoundingDifference ? DifferenceKind::rounding : DifferenceKind::weights;
  }
  const bool rounded = relative(a.grad_norm, b.grad_norm) < kRoundingDifference;
  if (!rounded) return DifferenceKind::reduction;
  if (divided) return DifferenceKind::none;
  if (!same_number(a.grad_norm, b.grad_norm)) return DifferenceKind::rounding;
  if (a.statistics != b.statistics) return DifferenceKind::statistics;
  if (a.weights != b.weights) return DifferenceKind::update;
  return DifferenceKind::none;
}

std::string explanation_of(const Comparison& c) {
  const StepRecord& a = *c.a;
  const StepRecord& b = *c.b;
  const bool first = c.step == c.first_step;
  switch (c.kind) {
    case DifferenceKind::none:
    case DifferenceKind::evaluation:
      return "";
    case DifferenceKind::data_order:
      return "the global batch consists of other samples, or has them in another order; compare --seed, "
             "--global-batch, "
             "--train-limit, the data and the step from which each was resumed";
    case DifferenceKind::augmentation:
      return "the samples are the same, but not their pixels; compare the options of augmentation, --seed and the data";
    case DifferenceKind::schedule:
      return fmt::format("the learning rate is {} and {}; compare --lr, --schedule, --warmup-epochs and --epochs", a.lr,
                         b.lr);
    case DifferenceKind::weights:
      return fmt::format("the same batch gives a loss of {} and {}; {}", a.loss, b.loss,
                         first
                             ? "the initial weights or the network differ, compare --model, --init, --init-from, --seed"
                             : "the weights that were not hashed differ, or dropout, label smoothing or precision do");
    case DifferenceKind::rounding:
      return fmt::format(
          "loss {} and {}, gradient norm {} and {}: they differ like another order of additions, from {}", a.loss,
          b.loss, a.grad_norm, b.grad_norm,
          c.options.deterministic
              ? "other logical shards or instructions of the processor, as both runs have --deterministic"
              : "other kernels, logical shards or numbers of ranks; --deterministic fixes it");
    case DifferenceKind::reduction:
      return fmt::format(
          "the loss is the same, the norm of the gradient is {} and {}: backward or the sum over the ranks "
          "differ; compare --reduction, --gradient-precision, the number of ranks",
          a.grad_norm, b.grad_norm);
    case DifferenceKind::statistics:
      return "the running statistics of batch normalisation differ after the step; compare the logical shards";
    case DifferenceKind::update:
      return "the same gradient updates the weights differently; compare the options of the optimizer";
  }
  return "";
}

}  // namespace

const char* difference_name(DifferenceKind kind) {
  switch (kind) {
    case DifferenceKind::none:
      return "no difference";
    case DifferenceKind::data_order:
      return "data order";
    case DifferenceKind::augmentation:
      return "augmentation";
    case DifferenceKind::schedule:
      return "schedule";
    case DifferenceKind::weights:
      return "weights";
    case DifferenceKind::rounding:
      return "rounding";
    case DifferenceKind::reduction:
      return "reduction";
    case DifferenceKind::statistics:
      return "batch-norm statistics";
    case DifferenceKind::update:
      return "update";
    case DifferenceKind::evaluation:
      return "evaluation";
  }
  return "";
}

Comparison compare(std::span<const StepRecord> a, std::span<const StepRecord> b, ComparedOptions options) {
  Comparison result;
  result.options = options;
  std::size_t j = 0;
  for (const StepRecord& step : a) {
    while (j < b.size() && b[j].step < step.step) ++j;
    if (j == b.size()) break;
    if (b[j].step != step.step) continue;
    if (result.steps++ == 0) result.first_step = step.step;
    result.kind = kind_of(step, b[j], options.divided);
    result.step = step.step;
    if (result.kind == DifferenceKind::none) continue;
    result.a = step;
    result.b = b[j];
    break;
  }
  return result;
}

Comparison compare(const Comparison& steps, const RunHistory& a, const RunHistory& b) {
  Comparison result = steps;
  for (const EvalRecord& mine : a.evaluations) {
    // The step that differs also changes its evaluation.
    if (mine.step > steps.step || (mine.step == steps.step && steps.kind != DifferenceKind::none)) break;
    const auto other = std::find_if(b.evaluations.begin(), b.evaluations.end(),
                                    [&](const EvalRecord& each) { return each.step == mine.step; });
    if (other == b.evaluations.end()) continue;
    if (same_number(mine.val_loss, other->val_loss) && same_number(mine.val_accuracy, other->val_accuracy)) continue;
    result.kind = DifferenceKind::evaluation;
    result.step = mine.step;
    result.evaluation_a = mine.val_loss;
    result.evaluation_b = other->val_loss;
    break;
  }
  return result;
}

std::string describe(const Comparison& c, const std::string& a, const std::string& b) {
  if (c.steps == 0) return fmt::format("{} and {} have no step in common\n", a, b);
  if (c.kind == DifferenceKind::none) {
    return fmt::format(
        "no difference in the {} steps from {} to {} that both runs have{}\n", c.steps, c.first_step, c.step,
        c.options.divided ? "; gradient norms are compared up to rounding, running statistics and weights "
                            "not, as --pipeline or --split-linear divides the network"
                          : "");
  }
  if (c.kind == DifferenceKind::evaluation) {
    return fmt::format(
        "first difference after step {}: evaluation: the training is the same, but the loss on the test set "
        "is {} and {}; compare --test-limit, the test data and --ema-decay\n",
        c.step, c.evaluation_a, c.evaluation_b);
  }
  return fmt::format("first difference at step {}: {}: {}\n", c.step, difference_name(c.kind), explanation_of(c));
}

}  // namespace ddp
