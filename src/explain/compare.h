// The first step at which two runs differ, and in what.
//
//   const Comparison result = compare(read_steps("runs/a"), read_steps("runs/b"));
//   if (result.kind != DifferenceKind::none) std::cout << describe(result, "runs/a", "runs/b");
//
// Within a step the values are compared in the order in which they are computed, so the first that differs is the cause
// and the following ones its effects. The options that differ and change this value (OptionSpec::effects) are named.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "metrics/logs/read_log.h"
#include "options/table/effects.h"

namespace ddp {

enum class DifferenceKind {
  none,
  data_order,    // other samples, or in another order
  augmentation,  // the same samples with other pixels
  schedule,      // the learning rate
  loss,          // how the loss follows from the same batch and weights
  weights,       // the weights before the step: other initial weights, or another update
  rounding,      // loss or gradient differ as much as another order of additions explains
  gradient,      // backward, or the sum of the gradients
  statistics,    // running statistics of batch normalisation
  update,        // the weights after it
  evaluation,    // the result of an evaluation
};
const char* difference_name(DifferenceKind kind);

// An option, or another input of a run, in which the two differ.
struct ChangedInput {
  std::string name;  // "--lr", "training pixels"
  std::string a, b;  // the values; empty: they say nothing to people
  OptionEffects effects;
  bool derived = false;  // it follows from others, which are named where they differ too
};

// What the options of the two runs say about how their steps may be compared.
struct ComparedOptions {
  bool deterministic = false;  // both have --deterministic
  // One divides the network among its ranks (--pipeline, --split-linear): the gradient norm is added in another order, and the
  // hashes of running statistics and weights are those of other parts.
  bool divided = false;
  std::vector<ChangedInput> changed = {};
};

struct Comparison {
  ComparedOptions options = {};
  DifferenceKind kind = DifferenceKind::none;
  std::int64_t step = 0;        // at which they differ
  std::int64_t steps = 0;       // that both runs have
  std::int64_t first_step = 0;  // of these
  std::optional<StepRecord> a = std::nullopt;
  std::optional<StepRecord> b = std::nullopt;
  double evaluation_a = 0;  // the losses of the evaluation that differs
  double evaluation_b = 0;
  std::vector<ChangedInput> causes = {};  // of ComparedOptions::changed, those that change what differs first
};

// The steps in increasing order; only those that both have are compared.
Comparison compare(std::span<const StepRecord> a, std::span<const StepRecord> b, ComparedOptions options = {});
// The same with the evaluations up to that step.
Comparison compare(const Comparison& steps, const RunHistory& a, const RunHistory& b);

std::string describe(const Comparison& comparison, const std::string& a, const std::string& b);

}  // namespace ddp
