// ddp_train bench: the training step on one batch held in memory, as one JSON line; bench/compare runs PyTorch
// alongside it. With --on-request it times a series of steps for each line on standard input, so that bench/scaling can
// alternate between several processes within a second.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "commands/commands.h"
#include "commands/ranks.h"
#include "commands/stages.h"
#include "data/pipeline/sample_key.h"
#include "job/joint_error.h"
#include "metrics/phases.h"
#include "train/trainer.h"

namespace ddp {
namespace {

constexpr double kWarmUpSeconds = 0.5;
constexpr double kStretchSeconds = 0.3;
constexpr int kStretches = 9;
constexpr std::int64_t kFirstSteps = 3;

// This rank's samples of one global batch.
struct HeldBatch {
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;
  std::vector<std::uint32_t> indices;
  std::vector<std::uint64_t> keys;
};

HeldBatch hold_batch(const Dataset& data, const Range& samples, std::uint64_t seed) {
  HeldBatch held;
  const std::size_t bytes = data.shape().size();
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

// The training step on one batch held in memory, timed in series. All ranks run the same number of steps and report the
// time of the slowest rank.
class StepTimer {
 public:
  StepTimer(const MpiSession& session, Communicator& communicator, Trainer& trainer, const Batch& batch)
      : session_(session), communicator_(communicator), trainer_(trainer), batch_(batch), expected_(run(kFirstSteps)) {
    (void)run(steps_in(kWarmUpSeconds));
  }

  // Times series of steps; afterwards step_seconds() is their median and phases() the breakdown by phase.
  void measure(int stretches) {
    const PhaseTotals before = trainer_.phase_totals();
    std::vector<double> seconds;
    for (int i = 0; i < stretches; ++i) seconds.push_back(run(steps_in(kStretchSeconds)));
    step_seconds_ = median(seconds);
    phases_ = trainer_.phase_totals();
    phases_ -= before;
  }

  double step_seconds() const { return step_seconds_; }
  const PhaseTotals& phases() const { return phases_; }

 private:
  std::int64_t steps_in(double seconds) const {
    return std::max<std::int64_t>(2, static_cast<std::int64_t>(seconds / expected_));
  }

  // Seconds per step.
  double run(std::int64_t count) {
    communicator_.barrier();
    const double begin = now();
    for (std::int64_t i = 0; i < count; ++i) {
      // Steps without an update are cheaper.
      if (trainer_.step_on(batch_).finite) continue;
      throw JointError(ExitCode::non_finite,
                       "the steps produced non-finite values, so their time is meaningless; lower --lr",
                       session_.rank() == 0);
    }
    communicator_.barrier();
    double seconds = now() - begin;
    communicator_.all_reduce(std::span(&seconds, 1), ReduceOp::max);
    return seconds / static_cast<double>(count);
  }

  const MpiSession& session_;
  Communicator& communicator_;
  Trainer& trainer_;
  const Batch& batch_;
  double expected_;
  double step_seconds_ = 0;
  PhaseTotals phases_;
};

void print_line(const Options& options, std::int64_t global_batch, int ranks, int threads, const StepTimer& timer) {
  const double step = timer.step_seconds();
  const PhaseTotals& phases = timer.phases();
  fmt::print(
      "{{\"model\":\"{}\",\"precision\":\"{}\",\"global_batch\":{},\"ranks\":{},\"threads\":{},"
      "\"samples_per_second\":{:.1f},\"step_ms\":{:.4f},\"forward\":{:.3f},\"backward\":{:.3f},"
      "\"exposed_communication\":{:.3f},\"optimizer\":{:.3f}}}\n",
      options.model.model, to_string(options.model.precision), global_batch, ranks, threads,
      static_cast<double>(global_batch) / step, step * 1e3, phases[Phase::forward] / phases.sum(),
      phases[Phase::backward] / phases.sum(), phases[Phase::exposed_communication] / phases.sum(),
      phases[Phase::optimizer] / phases.sum());
  (void)std::fflush(stdout);
}

// True on all ranks if rank 0 read another line from standard input; false at end of file.
bool another_request(const MpiSession& session, Communicator& communicator) {
  std::int64_t more = 0;
  std::string line;
  if (session.rank() == 0) more = std::getline(std::cin, line) ? 1 : 0;
  communicator.all_reduce(std::span(&more, 1), ReduceOp::max);
  return more != 0;
}

}  // namespace

int run_bench(const MpiSession& session, const Options& options) {
  const Ranks ranks = open_ranks(session, options);
  log_device(ranks.device);
  Communicator& communicator = *ranks.communicator;
  Experiment experiment = prepare_experiment(session, communicator, ranks.device,
                                             with_one_batch(options, session.size()), {.data = DataUse::sample});
  TrainingRun run(experiment, communicator);
  Trainer trainer(experiment, run, communicator, nullptr, nullptr);
  const std::int64_t global_batch = experiment.batch.global_batch;
  const HeldBatch held = hold_batch(*experiment.data.train, experiment.batch.rank_samples(session.rank(), global_batch),
                                    options.optimizer.seed);
  const Batch batch{held.pixels, held.labels, static_cast<std::int64_t>(held.labels.size()), held.indices, held.keys};

  if (options.bench.stages && session.rank() == 0) print_stages(ranks.device, experiment);
  StepTimer timer(session, communicator, trainer, batch);
  const auto measure = [&](int stretches) {
    timer.measure(stretches);
    if (session.rank() == 0) print_line(options, global_batch, session.size(), ranks.binding.threads, timer);
  };
  if (options.bench.on_request) {
    while (another_request(session, communicator)) measure(1);
  } else {
    measure(kStretches);
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace ddp
