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
#include "base/status/set_up_progress.h"
#include "base/text/text.h"
#include "checkpoint/layout.h"
#include "commands/commands.h"
#include "commands/measure/measure.h"
#include "commands/ranks.h"
#include "commands/run_header.h"
#include "explain/tensorboard.h"
#include "explain/trace_file.h"
#include "explain/verdict.h"
#include "job/hangs/hang_table.h"
#include "job/report.h"
#include "job/signals.h"
#include "metrics/clock_sync.h"
#include "metrics/display/waiting_lines.h"
#include "metrics/gather_phases.h"
#include "options/parse.h"
#include "options/version.h"
#include "run_folder/run_folder.h"
#include "train/inputs/resume.h"
#include "train/loop/prepared_run.h"
#include "train/loop/trainer.h"
#include "train/loop/training_run.h"

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

// "accuracy 98.30 % (top 1) on 10,000 test images after epoch 3; the best: 98.41 % after epoch 2"
std::string result_text(const TrainingRun& run, const Inputs& inputs) {
  if (!run.ever_evaluated())
    return run.best_accuracy() < 0 ? "" : fmt::format("best accuracy so far {:.2f} %", 100 * run.best_accuracy());
  const auto epoch_of = [&](std::int64_t step) {
    return fmt::format("{:.4g}", static_cast<double>(step) / static_cast<double>(inputs.batch.steps_per_epoch));
  };
  const double last = run.last_evaluation().accuracy;
  std::string text =
      fmt::format("accuracy {:.2f} % (top 1) on {} test images after epoch {}", 100 * last,
                  format_count(static_cast<std::uint64_t>(inputs.test().size())), epoch_of(run.evaluated_step()));
  if (run.best_accuracy() > last) {
    text += fmt::format("; the best: {:.2f} %", 100 * run.best_accuracy());
    if (run.best_step() >= 0) text += " after epoch " + epoch_of(run.best_step());
  }
  return text;
}

ExitCode run_trainer(Trainer& trainer, const TrainingRun& run, const PreparedRun& prepared, const Signals& signals,
                     const Ranks& where, Console* console) {
  const Options& options = prepared.job.options;
  Communicator& ranks = prepared.job.ranks;
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
  const bool explains = trainer.timing().ranks[0].steps >= kFewestExplainedSteps;
  const Explanation found = explains ? explain(trainer.timing(), options) : Explanation{};
  console->summary({.result = result_text(run, prepared.inputs),
                    .verdict = explains ? brief(found) : "",
                    .healthy = found.cause == Cause::none,
                    .ranks = phases,
                    .hosts = hosts,
                    .full = options.output.summary == SummaryStyle::full});
  if (const std::string text = trainer.balance_text(); !text.empty()) log_info("balance: {}", text);
  if (const std::string text = trainer.split_text(); !text.empty()) log_info("split-linear: {}", text);
  if (!pipeline.empty()) log_info("pipeline: {}", pipeline);
  if (code == ExitCode::stopped) {
    log_info("stopped by {} after step {}; resume with --resume auto",
             signals.stop_reason().empty() ? "a request to another rank" : signals.stop_reason(), run.step());
  }
  return code;
}

std::string first_line(const Options& options, int ranks) {
  return fmt::format("ddp_train {}: {} on {}, {}; preparing", program_version(), options.model.model,
                     options.data.dataset, counted(static_cast<std::uint64_t>(ranks), "rank"));
}

}  // namespace

int run_train(const MpiSession& session, const Options& given) {
  const Options options = together(session, [&] { return with_run_directory(given); });
  std::optional<Console> console;
  std::optional<WaitingLines> waiting;
  if (session.rank() == 0) {
    console.emplace(options.output.progress);
    waiting.emplace(*console, first_line(options, session.size()), set_up_progress);
  }
  const Ranks ranks = open_ranks(session, options);
  Communicator& communicator = *ranks.communicator;

  std::unique_ptr<RunFolder> folder;
  const std::optional<ResumePoint> resumed = find_resume_point(session, communicator, options, folder);
  // Before, the folder may belong to another run.
  set_hang_folder(run_directory(options));
  const Checkpoint* checkpoint = folder ? folder->checkpoint() : nullptr;
  PreparedRun prepared(session, communicator, ranks.device, options,
                       {.resumed = resumed ? std::optional(resumed->state) : std::nullopt,
                        .model_copy = checkpoint != nullptr ? model_copy_of(checkpoint->path) : "",
                        .split = checkpoint != nullptr ? split_of(checkpoint->path) : ""});
  Signals& signals = *Signals::current();
  std::optional<TensorBoard> board;  // outlives the folder's log
  std::optional<RunOutput> output;
  if (folder) output.emplace(RunOutput{*folder, *console});
  TrainingRun run(prepared);
  if (resumed) run.restore(session, *resumed, checkpoint);
  Trainer trainer(prepared, run, prepared.job.options, &signals, output ? &*output : nullptr);
  const RunFacts facts = or_abort(session, [&] { return complete_facts(trainer.facts(), ranks, options); });
  trainer.set_facts(facts);
  // All checks have passed; the folder is written to from here on.
  together(session, [&] {
    if (!folder) return;
    folder->open({dump_config(prepared.job.options), prepared.inputs.onnx, prepared.inputs.split,
                  options.output.keep_checkpoints, options.output.on_checkpoint_failure == SaveFailure::retry});
    if (options.output.tensorboard && has_tensorboard()) folder->log().set_listener(&board.emplace(folder->path()));
    waiting->stop();
    console->header(fmt::format("ddp_train {}", program_version()),
                    header_rows({prepared, ranks, run, trainer, resumed}));
  });
  return or_abort(session, [&] {
    return static_cast<int>(run_trainer(trainer, run, prepared, signals, ranks, console ? &*console : nullptr));
  });
}

}  // namespace ddp
