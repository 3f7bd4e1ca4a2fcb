// ddp_train train: from options to a finished run folder.
#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/gpu_trace.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/layout.h"
#include "commands/commands.h"
#include "commands/measure.h"
#include "commands/ranks.h"
#include "commands/run_header.h"
#include "explain/tensorboard.h"
#include "explain/trace_file.h"
#include "explain/verdict.h"
#include "job/hang_table.h"
#include "job/report.h"
#include "job/signals.h"
#include "metrics/clock_sync.h"
#include "metrics/gather_phases.h"
#include "options/parse.h"
#include "options/version.h"
#include "run_folder/run_folder.h"
#include "train/pipeline_setup.h"
#include "train/resume.h"
#include "train/trainer.h"
#include "train/training_run.h"

namespace ddp {
namespace {

// A verdict on fewer steps would be a guess.
constexpr double kFewestExplainedSteps = 20;

// The stored configuration names the resolved folder, since --output %j would expand differently in the next job.
Options with_run_directory(const Options& options) {
  Options result = options;
  result.output.output = literal_output(run_directory(options));
  return result;
}

// --trace: what is recorded from before the first step on.
struct TraceStart {
  ClockSample clock;
  std::unique_ptr<GpuTrace> gpu;  // null: none, or its kernels cannot be traced
};

// Collective.
TraceStart start_trace(Communicator& ranks, const Ranks& where) {
  TraceStart start{measure_clock(ranks), nullptr};
  if (!where.device.gpu_module) return start;
  try {
    start.gpu = where.device.gpu_module->start_trace();
  } catch (const Error& error) {
    if (ranks.rank() == 0) log_info("the trace will not show single kernels: {}", error.what());
  }
  return start;
}

// Collective.
void write_trace(const Trainer& trainer, Communicator& ranks, const Ranks& where, const TraceStart& start,
                 const Options& options) {
  const AlignedClock clock{start.clock, measure_clock(ranks)};
  std::vector<GpuSpan> kernels;
  try {
    if (start.gpu) kernels = start.gpu->finish();
  } catch (const Error& error) {
    log_warning("rank {}: the trace does not show single kernels: {}", ranks.rank(), error.what());
  }
  const std::string mine = trace_events({ranks.rank(), where.topology.host_name(), clock, trainer.last_steps(),
                                         trainer.last_loads(), std::move(kernels)});
  const std::vector<std::string> all = ranks.gather_text(mine, "the trace");
  if (ranks.rank() != 0) return;
  try {
    replace_file(run_directory(options) / "trace.json", trace_file(all), ExitCode::checkpoint);
  } catch (const Error& error) {
    log_warning("there is no trace: {}", error.what());
  }
}

ExitCode run_trainer(Trainer& trainer, const TrainingRun& run, Communicator& ranks, const Signals& signals,
                     const Ranks& where, const Options& options, Console* console) {
  std::optional<TraceStart> trace;
  if (options.output.trace) trace.emplace(start_trace(ranks, where));
  const ExitCode code = trainer.run();
  if (trace) write_trace(trainer, ranks, where, *trace, options);
  const std::vector<PhaseTotals> phases = gather_phases(ranks, trainer.phase_totals());
  const std::string pipeline = trainer.pipeline_text();
  if (console == nullptr) return code;
  std::vector<std::string> hosts;
  // The stages of a pipeline have different work.
  for (const Topology::RankHost& place : where.topology.ranks) {
    if (options.distributed.pipeline == 1) hosts.push_back(place.host_name);
  }
  console->summary(phases, hosts);
  if (const std::string text = trainer.balance_text(); !text.empty()) log_info("balance: {}", text);
  if (const std::string text = trainer.split_text(); !text.empty()) log_info("split-linear: {}", text);
  if (!pipeline.empty()) log_info("pipeline: {}", pipeline);
  if (trainer.timing().ranks[0].steps >= kFewestExplainedSteps) {
    console->line("\n" + brief(explain(trainer.timing(), options)));
  }
  if (code == ExitCode::stopped) {
    log_info("stopped by {} after step {}; resume with --resume auto",
             signals.stop_reason().empty() ? "a request to another rank" : signals.stop_reason(), run.step());
  }
  return code;
}

}  // namespace

int run_train(const MpiSession& session, const Options& given) {
  const Options options = together(session, [&] { return with_run_directory(given); });
  set_hang_folder(run_directory(options));
  const Ranks ranks = open_ranks(session, options);
  Communicator& communicator = *ranks.communicator;

  std::unique_ptr<RunFolder> folder;
  const std::optional<ResumePoint> resumed = find_resume_point(session, communicator, options, folder);
  const Checkpoint* checkpoint = folder ? folder->checkpoint() : nullptr;
  Experiment experiment =
      prepare_experiment(session, communicator, ranks.device, options,
                         {.resumed = resumed ? std::optional(resumed->state) : std::nullopt,
                          .model_copy = checkpoint != nullptr ? model_copy_of(checkpoint->path) : ""});
  Signals& signals = *Signals::current();
  std::optional<Console> console;
  std::optional<TensorBoard> board;  // outlives the folder's log
  std::optional<RunOutput> output;
  if (folder) output.emplace(RunOutput{*folder, console.emplace(options.output.progress)});
  TrainingRun run(experiment, communicator);
  if (resumed) run.restore(session, *resumed, checkpoint);
  Trainer trainer(experiment, run, communicator, &signals, output ? &*output : nullptr);
  const RunFacts facts = or_abort(session, [&] { return complete_facts(trainer.facts(), ranks, options); });
  trainer.set_facts(facts);
  // All checks have passed; the folder is written to from here on.
  together(session, [&] {
    if (!folder) return;
    folder->open({dump_config(experiment.options), experiment.onnx, options.output.keep_checkpoints,
                  options.output.on_checkpoint_failure == SaveFailure::retry});
    if (options.output.tensorboard && has_tensorboard()) folder->log().set_listener(&board.emplace(folder->path()));
    console->header(fmt::format("ddp_train {}", program_version()),
                    header_rows({experiment, ranks, run, trainer, resumed}));
  });
  return or_abort(session, [&] {
    return static_cast<int>(
        run_trainer(trainer, run, communicator, signals, ranks, options, console ? &*console : nullptr));
  });
}

}  // namespace ddp
