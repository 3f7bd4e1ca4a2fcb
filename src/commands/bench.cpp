// ddp_train bench: the training step on one batch held in memory, as one JSON line; bench/compare puts PyTorch beside
// it.
#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "commands/commands.h"
#include "commands/ranks.h"
#include "data/sample_key.h"
#include "metrics/phases.h"
#include "runtime/joint_error.h"
#include "train/trainer.h"

namespace ddp {
namespace {

constexpr double kWarmUpSeconds = 0.5;
constexpr double kRepeatSeconds = 0.3;
constexpr int kRepeats = 9;

// This rank's samples of one global batch.
struct HeldBatch {
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;
  std::vector<std::uint32_t> indices;
  std::vector<std::uint64_t> keys;
};

HeldBatch hold_batch(const Dataset& data, const Range& samples, std::uint64_t seed) {
  HeldBatch held;
  const std::size_t bytes = data.shape().bytes();
  held.pixels.resize(static_cast<std::size_t>(samples.size()) * bytes);
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    const std::span<std::uint8_t> pixels = std::span(held.pixels).subspan(static_cast<std::size_t>(i) * bytes, bytes);
    held.labels.push_back(data.label(data.read(samples.begin + i, pixels)));
    held.indices.push_back(static_cast<std::uint32_t>(samples.begin + i));
    held.keys.push_back(sample_key(seed, 0, held.indices.back()));
  }
  return held;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int run_bench(const MpiSession& session, const Options& options) {
  const Ranks ranks = open_ranks(session, options);
  log_device(ranks.device);
  Communicator& communicator = *ranks.communicator;
  Options mine = options;
  // One batch is enough; without a batch size it is the default one.
  const std::int64_t largest = std::max(options.batch.global_batch.value_or(kDefaultGlobalBatch),
                                        options.batch.batch_per_rank.value_or(0) * session.size());
  mine.data.train_limit = std::max(largest, options.batch.batch_size.value_or(0));
  mine.data.test_limit = 1;
  Experiment experiment = prepare_experiment(session, communicator, ranks.device, mine, std::nullopt);
  Trainer trainer(experiment, communicator, nullptr, nullptr, std::nullopt);
  const HeldBatch held =
      hold_batch(*experiment.data.train, experiment.batch.rank_samples(session.rank(), experiment.batch.global_batch),
                 options.optimizer.seed);
  const Batch batch{held.pixels, held.labels, static_cast<std::int64_t>(held.labels.size()), held.indices, held.keys};

  const auto run_steps = [&](std::int64_t count) {
    communicator.barrier();
    const double begin = now();
    for (std::int64_t i = 0; i < count; ++i) {
      // Steps that update nothing are cheaper.
      if (trainer.step_on(batch).finite) continue;
      throw JointError(ExitCode::non_finite,
                       "the steps ended in numbers that are not finite, and have no time worth knowing; lower --lr",
                       session.rank() == 0);
    }
    communicator.barrier();
    double seconds = now() - begin;
    communicator.all_reduce(std::span(&seconds, 1), ReduceOp::max);
    return seconds / static_cast<double>(count);
  };
  // All ranks do the same number of steps: the time is the slowest rank's, and the same on all.
  const double first = run_steps(3);
  const auto steps_in = [&](double seconds) {
    return std::max<std::int64_t>(2, static_cast<std::int64_t>(seconds / first));
  };
  (void)run_steps(steps_in(kWarmUpSeconds));
  const PhaseTotals before = trainer.phase_totals();
  std::vector<double> seconds;
  for (int repeat = 0; repeat < kRepeats; ++repeat) seconds.push_back(run_steps(steps_in(kRepeatSeconds)));
  PhaseTotals phases = trainer.phase_totals();
  phases -= before;
  if (session.rank() != 0) return static_cast<int>(ExitCode::done);
  const double step = median(seconds);
  fmt::print(
      "{{\"model\":\"{}\",\"precision\":\"{}\",\"global_batch\":{},\"ranks\":{},\"threads\":{},"
      "\"samples_per_second\":{:.1f},\"step_ms\":{:.4f},\"forward\":{:.3f},\"backward\":{:.3f},"
      "\"exposed_communication\":{:.3f},\"optimizer\":{:.3f}}}\n",
      options.model.model, to_string(options.model.precision), experiment.batch.global_batch, session.size(),
      ranks.binding.threads, static_cast<double>(experiment.batch.global_batch) / step, step * 1e3,
      phases[Phase::forward] / phases.sum(), phases[Phase::backward] / phases.sum(),
      phases[Phase::exposed_communication] / phases.sum(), phases[Phase::optimizer] / phases.sum());
  return static_cast<int>(ExitCode::done);
}

}  // namespace ddp
