#include "explain/compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/text/text.h"

namespace ddp {
namespace {

// Relative differences up to this are another order of additions in fp32.
constexpr double kRoundingDifference = 1e-5;
// The same of a gradient norm where the loss differs by rounding too: deep networks amplify it.
constexpr double kAmplifiedDifference = 1e-3;

// The first number of a step that differs.
enum class Place { none, samples, pixels, rate, loss, gradient, rounding, statistics, update };

bool same_number(double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); }

double relative(double x, double y) {
  if (same_number(x, y)) return 0;
  if (!std::isfinite(x) || !std::isfinite(y)) return 1;
  return std::abs(x - y) / std::max(std::abs(x), std::abs(y));
}

std::vector<ChangedInput> with_effect(const std::vector<ChangedInput>& changed, OptionEffects effects) {
  std::vector<ChangedInput> found;
  std::copy_if(changed.begin(), changed.end(), std::back_inserter(found),
               [effects](const ChangedInput& input) { return input.effects.has(effects); });
  return found;
}

// In the order in which a step computes them.
Place place_of(const StepRecord& a, const StepRecord& b, const ComparedOptions& options) {
  if (a.samples != b.samples) return Place::samples;
  // Images that a device keeps or edits are not hashed.
  if (a.pixels != b.pixels && a.pixels != 0 && b.pixels != 0) return Place::pixels;
  if (a.lr != b.lr) return Place::rate;
  const double loss = relative(a.loss, b.loss);
  if (loss >= kRoundingDifference) return Place::loss;
  const bool expected = loss == 0 || !with_effect(options.changed, Effect::gradient).empty();
  const double gradient = relative(a.grad_norm, b.grad_norm);
  if (gradient >= (expected ? kRoundingDifference : kAmplifiedDifference)) return Place::gradient;
  if (loss > 0) return Place::rounding;
  if (options.divided) return Place::none;
  if (gradient > 0) return Place::rounding;
  if (a.statistics != b.statistics) return Place::statistics;
  if (a.weights != b.weights) return Place::update;
  return Place::none;
}

// The first of these effects that an input which differs has.
std::vector<ChangedInput> first_of(const std::vector<ChangedInput>& changed,
                                   std::initializer_list<OptionEffects> effects) {
  for (const OptionEffects effect : effects) {
    std::vector<ChangedInput> found = with_effect(changed, effect);
    const auto is_derived = [](const ChangedInput& input) { return input.derived; };
    if (!std::all_of(found.begin(), found.end(), is_derived)) std::erase_if(found, is_derived);
    if (!found.empty()) return found;
  }
  return {};
}

// What differs, and the inputs that it may come from. `first`: of the first step of both runs.
void judge(Comparison& c, Place place, bool first) {
  const std::vector<ChangedInput>& changed = c.options.changed;
  const auto set = [&](DifferenceKind kind, std::initializer_list<OptionEffects> effects) {
    c.kind = kind;
    c.causes = first_of(changed, effects);
  };
  using enum Effect;
  switch (place) {
    case Place::none:
      return set(DifferenceKind::none, {});
    case Place::samples:
      return set(DifferenceKind::data_order, {samples});
    case Place::pixels:
      return set(DifferenceKind::augmentation, {pixels});
    case Place::rate:
      return set(DifferenceKind::schedule, {rate});
    case Place::loss:
      // Weights that are not hashed differ after another update, which earlier steps show in no other way.
      if (!first) return set(DifferenceKind::weights, {update, gradient | loss | statistics, weights | rounding});
      set(DifferenceKind::loss, {loss | weights});
      if (with_effect(c.causes, loss).empty()) c.kind = DifferenceKind::weights;
      return;
    case Place::gradient:
      set(DifferenceKind::gradient, {gradient, loss | weights, update});
      if (with_effect(c.causes, gradient | loss | weights).empty() && !c.causes.empty())
        c.kind = DifferenceKind::weights;
      return;
    case Place::rounding:
      set(DifferenceKind::rounding, {rounding, loss | weights, gradient, update});
      if (c.causes.empty() || !with_effect(c.causes, rounding).empty()) return;
      // A small difference of another kind.
      c.kind = !with_effect(c.causes, loss).empty()       ? DifferenceKind::loss
               : !with_effect(c.causes, gradient).empty() ? DifferenceKind::gradient
                                                          : DifferenceKind::weights;
      return;
    case Place::statistics:
      return set(DifferenceKind::statistics, {statistics});
    case Place::update:
      return set(DifferenceKind::update, {update});
  }
}

// "--lr 0.1 and 0.2", "2 and 3 ranks", "other training pixels".
std::string text_of(const ChangedInput& input) {
  if (input.name.starts_with('-')) return fmt::format("{} {} and {}", input.name, input.a, input.b);
  if (input.a.empty()) return "other " + input.name;
  return fmt::format("{} and {} {}", input.a, input.b, input.name);
}

// The causes, or what to look at if nothing that is known differs.
std::string cause_of(const Comparison& c, const std::string& otherwise) {
  std::vector<std::string> texts;
  for (const ChangedInput& input : c.causes) texts.push_back(text_of(input));
  return texts.empty() ? otherwise : "because of " + join(texts);
}

std::string explanation_of(const Comparison& c) {
  const StepRecord& a = *c.a;
  const StepRecord& b = *c.b;
  switch (c.kind) {
    case DifferenceKind::none:
    case DifferenceKind::evaluation:
      return "";
    case DifferenceKind::data_order:
      return "the global batch consists of other samples, or has them in another order; " +
             cause_of(c,
                      "compare --seed, --global-batch, --train-limit, the data and the step from which each was "
                      "resumed");
    case DifferenceKind::augmentation:
      return "the samples are the same, but not their pixels; " +
             cause_of(c, "compare the options of augmentation, --seed and the data");
    case DifferenceKind::schedule:
      return fmt::format("the learning rate is {} and {}; {}", a.lr, b.lr,
                         cause_of(c, "compare --lr, --schedule, --warmup-epochs and --epochs"));
    case DifferenceKind::loss:
      return fmt::format("the same batch gives a loss of {} and {}; {}", a.loss, b.loss, cause_of(c, ""));
    case DifferenceKind::weights:
      return fmt::format(
          "the same batch gives a {} of {} and {}; {}", same_number(a.loss, b.loss) ? "gradient norm" : "loss",
          same_number(a.loss, b.loss) ? a.grad_norm : a.loss, same_number(a.loss, b.loss) ? b.grad_norm : b.loss,
          cause_of(c, c.step == c.first_step
                          ? "the initial weights or the network differ, compare --model, --init, "
                            "--init-from, --seed and the versions of the program"
                          : "the weights that were not hashed differ, or what the loss is computed by"));
    case DifferenceKind::rounding:
      return fmt::format(
          "loss {} and {}, gradient norm {} and {}: they differ like another order of additions, {}", a.loss, b.loss,
          a.grad_norm, b.grad_norm,
          cause_of(c, c.options.deterministic
                          ? "from other logical shards or instructions of the processor, as both runs have "
                            "--deterministic"
                          : "from other kernels, logical shards or numbers of ranks; --deterministic fixes it"));
    case DifferenceKind::gradient:
      return fmt::format("the loss is the same{}, the norm of the gradient is {} and {}; {}",
                         same_number(a.loss, b.loss) ? "" : " up to rounding", a.grad_norm, b.grad_norm,
                         cause_of(c,
                                  "backward or the sum over the ranks differ, compare --reduction, "
                                  "--gradient-precision and the number of ranks"));
    case DifferenceKind::statistics:
      return "the running statistics of batch normalisation differ after the step; " +
             cause_of(c, "compare the logical shards");
    case DifferenceKind::update:
      return "the same gradient updates the weights differently; " +
             cause_of(c, "compare the options of the optimizer and the checkpoints from which each was resumed");
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
    case DifferenceKind::loss:
      return "loss";
    case DifferenceKind::weights:
      return "weights";
    case DifferenceKind::rounding:
      return "rounding";
    case DifferenceKind::gradient:
      return "gradient";
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
  result.options = std::move(options);
  std::size_t j = 0;
  for (const StepRecord& step : a) {
    while (j < b.size() && b[j].step < step.step) ++j;
    if (j == b.size()) break;
    if (b[j].step != step.step) continue;
    if (result.steps++ == 0) result.first_step = step.step;
    result.step = step.step;
    judge(result, place_of(step, b[j], result.options), result.step == result.first_step);
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
    result.causes = with_effect(steps.options.changed, Effect::evaluation);
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
        "is {} and {}; {}\n",
        c.step, c.evaluation_a, c.evaluation_b, cause_of(c, "compare --test-limit, the test data and --ema-decay"));
  }
  return fmt::format("first difference at step {}: {}: {}\n", c.step, difference_name(c.kind), explanation_of(c));
}

}  // namespace ddp
