#include "explain/probed_cures.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>

namespace ddp {
namespace {

std::optional<std::int64_t> number_of(const Cure& cure, const std::string& key) {
  for (const auto& [name, value] : cure.options) {
    if (name == key) return std::stoll(value);
  }
  return std::nullopt;
}

std::int64_t threads_of(const RunView& view) { return view.timing.facts.threads.front(); }

// An image computes faster in a larger batch, as the batch before and the batch after show on the same ranks.
void larger_batch(const RunView& view, const StepProbe& probe, std::int64_t batch, Cure& cure) {
  const StepModel& m = view.model;
  const std::int64_t before = view.timing.facts.global_batch / view.ranks;
  const std::array<StepShape, 2> shapes = {{{before, threads_of(view)}, {batch, threads_of(view)}}};
  const std::optional<std::vector<ProbedStep>> steps = probe(shapes);
  if (!steps || steps->at(0).compute <= 0) return;
  const double factor = static_cast<double>(batch) / static_cast<double>(before);
  cure.step_seconds =
      with_batch(view.timing, m, factor, m.compute * steps->at(1).compute / steps->at(0).compute).seconds();
  cure.speedup = factor * m.seconds() / cure.step_seconds;
  cure.lower_bound = false;
}

// Seconds of the cores of the busiest machine if each rank computes for `own` seconds of a step with so many threads.
double busiest_machine(const RunView& view, std::int64_t threads, double own) {
  const RunFacts& facts = view.timing.facts;
  std::map<std::int64_t, double> busy;
  double most = 0;
  for (std::size_t rank = 0; rank < facts.machines.size(); ++rank) {
    const RankTiming& timing = view.timing.ranks[rank];
    double& machine = busy[facts.machines[rank]];
    machine += static_cast<double>(threads) * own + timing.loader.cpu_seconds / std::max(1.0, timing.steps);
    most = std::max(most, machine / static_cast<double>(std::max<std::int64_t>(1, facts.cpus[rank])));
  }
  return most;
}

// Forward, backward and update are as measured with fewer threads. What else a rank does, and its waiting for slower ones, was
// delayed by the waiting for cores like these.
void fewer_threads(const RunView& view, const StepProbe& probe, std::int64_t threads, Cure& cure) {
  const StepModel& m = view.model;
  const std::array<StepShape, 1> shapes = {{{view.timing.facts.global_batch / view.ranks, threads}}};
  const std::optional<std::vector<ProbedStep>> steps = probe(shapes);
  if (!steps || m.compute <= 0) return;
  const ProbedStep& step = steps->front();
  const double delay = std::max(1.0, m.compute / step.compute);
  StepModel cured = m;
  cured.compute = step.compute;
  cured.optimizer = step.optimizer;
  cured.other /= delay;
  cured.data_wait /= delay;
  cured.imbalance *= cured.own() / m.own();
  cured.data_wait += std::max(0.0, busiest_machine(view, threads, cured.compute + cured.optimizer) - cured.training());
  cure.step_seconds = cured.seconds();
  cure.speedup = m.seconds() / cure.step_seconds;
  cure.lower_bound = false;
}

}  // namespace

void use_probe(const RunView& view, const StepProbe& probe, Cure& cure) {
  if (!probe || !cure.lower_bound) return;
  if (const auto batch = number_of(cure, "batch-per-rank")) larger_batch(view, probe, *batch, cure);
  if (const auto threads = number_of(cure, "threads")) fewer_threads(view, probe, *threads, cure);
}

}  // namespace ddp
