#include "backend/cpu/candidates/trial.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "backend/cpu/pool/pool.h"
#include "backend/workspace.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/status/heartbeat.h"

namespace ddp {
namespace {

// Rounds after the first, which runs with cold caches.
constexpr int kRounds = 4;
// Long runs vary little: above this many seconds no more rounds follow.
constexpr double kEnough = 0.01;
// What takes this many times the rival's time is slower: a cold round, if it is not short, and a warm one.
constexpr double kColdFactor = 1.5;
constexpr double kShort = 5e-4;
constexpr double kLong = 5e-3;
constexpr double kWarmFactor = 1.15;
// Random values, repeated to fill tensors: as good as new ones for timing, and much faster to draw. A prime, so that
// no row or plane begins with the same one.
constexpr std::int64_t kPattern = 4099;

struct Values {
  Workspace::Part<float> part;
  std::int64_t count;
};

// Processor time on one thread, which other processes on the same core do not lengthen.
double trial_seconds() { return omp_get_max_threads() == 1 ? thread_cpu_seconds() : now(); }

double least_seconds(const std::function<void()>& run, double rival) {
  const double begin = trial_seconds();
  heartbeat();
  run();
  double best = trial_seconds() - begin;
  if (best > std::max(kColdFactor * rival, kShort) || (best > kLong && best > kWarmFactor * rival)) return best;
  for (int round = 0; round < kRounds && (round == 0 || trial_seconds() - begin < kEnough); ++round) {
    const double start = trial_seconds();
    heartbeat();
    run();
    best = std::min(best, trial_seconds() - start);
    if (best > std::max(kWarmFactor * rival, kShort)) break;
  }
  return best;
}

// `count` elements, of which the pattern has kPattern.
void fill(void* values, std::int64_t count, std::span<const std::byte> pattern) {
  const auto all = static_cast<std::size_t>(count) * (pattern.size() / kPattern);
  for (std::size_t begin = 0; begin < all; begin += pattern.size()) {
    std::memcpy(static_cast<std::byte*>(values) + begin, pattern.data(), std::min(pattern.size(), all - begin));
  }
}

}  // namespace

Trial::Trial(std::span<const OpSpec> specs, Layout x, Layout y, Element element) {
  const std::int64_t batch = batch_of(specs.front());
  const std::int64_t out = stored_elements(batch, output_of(specs.back()), y);
  Workspace space;
  const auto floats = [&](std::int64_t count) { return Values{space.add<float>(count), count}; };
  std::vector<Values> inputs;
  std::vector<Values> input_gradients;
  for (const Shape& shape : input_shapes(specs)) {
    inputs.push_back(floats(stored_elements(batch, shape, x)));
    input_gradients.push_back(floats(inputs.back().count));
  }
  const Values result = floats(out);
  const Values dy = floats(out);
  std::vector<Values> parameters;
  std::vector<Values> gradients;
  for (const std::int64_t count : parameter_sizes(specs)) {
    parameters.push_back(floats(count));
    gradients.push_back(floats(count));
  }
  std::int64_t statistic_count = 0;
  for (const OpSpec& each : specs) statistic_count += statistic_elements(each);
  const Values statistics = floats(statistic_count);
  const auto keys = space.add<std::uint64_t>(batch);
  memory_ = allocate_on_host(space.bytes(), "the timing of kernels");
  const auto at = [&](const Values& values) { return values.part.in(memory_.data()); };
  Random random(1, 0);
  std::vector<float> pattern(kPattern);
  std::generate(pattern.begin(), pattern.end(), [&] { return random.uniform(-0.5F, 0.5F); });
  for (const Values& values : parameters) fill(at(values), values.count, std::as_bytes(std::span(pattern)));
  // Activations in bf16 and fp16 take the first half of their memory.
  const auto values_at = [&](const Values& values) { return Activations(at(values), element); };
  std::vector<std::byte> activations(kPattern * bytes_of(element));
  for (std::size_t i = 0; i < pattern.size(); ++i) set_value(activations.data(), element, i, pattern[i]);
  for (const Values& values : inputs) fill(at(values), values.count, activations);
  fill(at(dy), dy.count, activations);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs_.emplace_back(at(inputs[i]), element);
    input_gradients_.emplace_back(at(input_gradients[i]), element);
  }
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    parameters_.push_back(at(parameters[p]));
    gradients_.push_back(at(gradients[p]));
  }
  const ArgumentList<ConstActivations> all_inputs{std::span<const ConstActivations>(inputs_)};
  const ArgumentList<const float*> all_parameters{std::span<const float* const>(parameters_)};
  forward_ = {.inputs = all_inputs,
              .y = values_at(result),
              .parameters = all_parameters,
              .active = batch,
              .statistics = at(statistics),
              .keys = keys.in(memory_.data())};
  backward_ = {.inputs = all_inputs,
               .y = values_at(result),
               .dy = values_at(dy),
               .input_gradients = ArgumentList<Activations>(std::span<const Activations>(input_gradients_)),
               .parameters = all_parameters,
               .parameter_gradients = ArgumentList<float*>(std::span<float* const>(gradients_)),
               .active = batch,
               .keys = keys.in(memory_.data())};
}

void Trial::prepare(const Op& op) {
  const OpTraits traits = op.traits();
  if (traits.saved_bytes > saved_.bytes()) {
    saved_ = allocate_on_host(traits.saved_bytes, "the timing of kernels");
    has_saved_ = false;
  }
  if (traits.workspace_bytes > workspace_.bytes()) {
    workspace_ = allocate_on_host(traits.workspace_bytes, "the timing of kernels");
  }
  forward_.saved = backward_.saved = saved_.data();
  forward_.workspace = backward_.workspace = workspace_.data();
}

double Trial::forward_seconds(Op& op, double rival) {
  prepare(op);
  has_saved_ = true;
  return least_seconds([&] { op.forward(forward_); }, rival);
}

double Trial::backward_seconds(Op& op, double rival) {
  prepare(op);
  if (!has_saved_) op.forward(forward_);
  has_saved_ = true;
  return least_seconds([&] { op.backward(backward_); }, rival);
}

}  // namespace ddp
