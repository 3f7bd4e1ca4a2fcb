// ddp_train bench: the training step on one batch held in memory, as one JSON line; bench/compare runs PyTorch
// alongside it. With --on-request it times a series of steps for each line on standard input, so that bench/scaling can
// alternate between several processes within a second.
#include <fmt/core.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/output.h"
#include "commands/commands.h"
#include "commands/measure/stages.h"
#include "commands/measure/step_timer.h"
#include "commands/ranks.h"
#include "metrics/phases.h"
#include "train/loop/trainer.h"

namespace ddp {
namespace {

constexpr int kStretches = 9;

void print_line(const Options& options, std::int64_t global_batch, int ranks, int threads, const StepTimer& timer) {
  const double step = timer.step_seconds();
  const PhaseTotals& phases = timer.phases();
  print_text(
      "{{\"model\":\"{}\",\"precision\":\"{}\",\"global_batch\":{},\"ranks\":{},\"threads\":{},"
      "\"samples_per_second\":{:.3f},\"step_ms\":{:.4f},\"processor_ms\":{:.4f},\"forward\":{:.3f},\"backward\":{:.3f},"
      "\"exposed_communication\":{:.3f},\"optimizer\":{:.3f}}}\n",
      options.model.model, to_string(options.model.precision), global_batch, ranks, threads,
      static_cast<double>(global_batch) / step, step * 1e3, timer.processor_seconds() * 1e3,
      phases[Phase::forward] / phases.sum(), phases[Phase::backward] / phases.sum(),
      phases[Phase::exposed_communication] / phases.sum(), phases[Phase::optimizer] / phases.sum());
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
  PreparedRun prepared(session, communicator, ranks.device, with_one_batch(at_full_size(options), session.size()),
                       {.data = DataUse::sample});
  TrainingRun run(prepared);
  const HeldBatch held(prepared);
  Trainer trainer(prepared, run, prepared.job.options, nullptr, nullptr);
  const std::int64_t global_batch = prepared.inputs.batch.global_batch;

  if (options.bench.stages && session.rank() == 0) print_stages(prepared);
  StepTimer timer(session, communicator, trainer, held.batch());
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
