// ddp_train train: from options to a finished run folder.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "checkpoint/layout.h"
#include "checkpoint/reader.h"
#include "commands/commands.h"
#include "commands/ranks.h"
#include "metrics/gather_phases.h"
#include "options/parse.h"
#include "options/version.h"
#include "runtime/report.h"
#include "runtime/signals.h"
#include "train/model_source.h"
#include "train/trainer.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

// On rank 0: the checkpoint that --resume asks for, or nothing for a new run.
std::optional<Checkpoint> find_resumed(const Options& options) {
  const std::string& resume = options.output.resume;
  if (resume == "none") return std::nullopt;
  if (resume == "auto") return find_checkpoint(run_directory(options));
  return open_checkpoint(resume);
}

// A new run never writes over an earlier one: what lies in the folder moves to RUN/earlier-1, earlier-2, ...
// Returns the place, or an empty path where there was nothing.
fs::path move_earlier_run(const fs::path& folder) {
  fs::path target;
  std::error_code error;
  for (const char* name :
       {"checkpoints", "latest", "best", "metrics.jsonl", "summary.csv", "config.cfg", kModelCopyFile}) {
    if (!fs::exists(fs::symlink_status(folder / name, error))) continue;
    for (int n = 1; target.empty(); ++n) {
      const fs::path candidate = folder / fmt::format("earlier-{}", n);
      if (fs::create_directory(candidate, error)) target = candidate;
      check(!error, ExitCode::checkpoint, "{}: cannot move an earlier run away: {}; give another --output",
            folder.string(), error.message());
    }
    fs::rename(folder / name, target / name, error);
    check(!error, ExitCode::checkpoint, "{}: cannot move an earlier run away: {}; give another --output",
          (folder / name).string(), error.message());
  }
  return target;
}

void write_config(const Options& options, const fs::path& folder) {
  const fs::path path = folder / "config.cfg";
  std::ofstream file(path);
  file << dump_config(options);
  file.close();
  check(static_cast<bool>(file), ExitCode::checkpoint, "{}: cannot write the configuration; is the disk full?",
        path.string());
}

// On rank 0: makes the run folder ready.
std::unique_ptr<RunOutput> open_output(const Experiment& experiment, const std::optional<TrainingState>& resumed,
                                       Console& console) {
  const Options& options = experiment.options;
  const fs::path folder = run_directory(options);
  if (!resumed) {
    const fs::path moved = move_earlier_run(folder);
    if (!moved.empty()) log_info("{} held an earlier run; it is in {} now", folder.string(), moved.string());
  }
  CheckpointWriter writer(folder, options.output.keep_checkpoints);
  write_config(options, folder);
  if (!experiment.onnx.empty()) replace_file(folder / kModelCopyFile, experiment.onnx, ExitCode::checkpoint);
  return std::make_unique<RunOutput>(RunOutput{
      folder, std::move(writer), RunLog(folder, resumed ? std::optional(resumed->step) : std::nullopt), console});
}

std::vector<HeaderRow> header_rows(const Experiment& e, const Ranks& ranks, Trainer& trainer,
                                   const std::optional<TrainingState>& resumed) {
  const BatchPlan& batch = e.batch;
  const auto parameters = static_cast<std::uint64_t>(e.graph.parameter_count());
  const std::uint64_t floats = parameters * sizeof(float);
  const std::uint64_t optimizer = trainer.optimizer().bytes();
  const std::uint64_t activations = e.network->memory().arena_bytes;
  std::vector<HeaderRow> rows = {
      {"model", fmt::format("{}, {} parameters", e.options.model.model,
                            format_count(static_cast<std::uint64_t>(e.graph.trained_count())))},
      {"data", fmt::format("{}, {} training and {} test images", e.options.data.dataset,
                           format_count(static_cast<std::uint64_t>(e.data.train->size())),
                           format_count(static_cast<std::uint64_t>(e.data.test->size())))},
      {"ranks", ranks.binding.sentence},
      {"device", e.backend->description() + (ranks.device.note.empty() ? "" : "; " + ranks.device.note)},
      {"batch", fmt::format("{} global = {} rank{} x {}{}, in {} logical shard{}", batch.global_batch, batch.ranks,
                            batch.ranks == 1 ? "" : "s", batch.per_rank,
                            batch.per_rank * batch.ranks == batch.global_batch ? "" : " at most", batch.shards,
                            batch.shards == 1 ? "" : "s")},
      {"steps", fmt::format("{} an epoch, {} in all", format_count(static_cast<std::uint64_t>(batch.steps_per_epoch)),
                            format_count(static_cast<std::uint64_t>(trainer.total_steps())))},
      {"learning rate", fmt::format("{:g} effective, {}", scaled_lr(e.options.optimizer, batch.global_batch),
                                    to_string(e.options.optimizer.schedule))},
      {"reduction",
       batch.ranks == 1
           ? "none, one rank"
           : fmt::format("{}{}",
                         e.options.optimizer.deterministic ? "tree" : to_string(e.options.distributed.reduction),
                         trainer.reduction_overlaps() ? ", overlapping backward" : ", after backward")},
      {"memory a rank", fmt::format("{} parameters + {} gradient + {} optimizer + {} activations = {}",
                                    format_bytes(floats), format_bytes(floats), format_bytes(optimizer),
                                    format_bytes(activations), format_bytes(2 * floats + optimizer + activations))},
      {"kernels", e.plan_origin},
      {"run folder", run_directory(e.options).string()}};
  if (resumed) {
    Fingerprint then = options_fingerprint(resumed->config);
    Fingerprint now = options_fingerprint(dump_config(e.options));
    const auto unknown_to = [](const Fingerprint& other) {
      return [&other](const FingerprintPart& part) {
        return std::none_of(other.begin(), other.end(), [&](const auto& each) { return each.name == part.name; });
      };
    };
    std::erase_if(now, unknown_to(then));
    // A run that goes on has them from the checkpoint.
    std::erase_if(now, [](const FingerprintPart& part) { return part.name == "--logical-shards"; });
    std::erase_if(then, unknown_to(now));
    const std::string changed = differences(now, then);
    rows.emplace_back("resumed",
                      fmt::format("at step {}{}", resumed->step, changed.empty() ? "" : ", with " + changed));
  }
  return rows;
}

// Reads the tensors on rank 0 and gives them to all ranks.
void load_tensors(const MpiSession& session, const std::optional<Checkpoint>& checkpoint, const Experiment& experiment,
                  Trainer& trainer) {
  together(session, [&] {
    if (!checkpoint) return;
    load(*checkpoint, model_label(experiment.options.model.model), Trainer::parameter_views(experiment),
         trainer.optimizer_views());
  });
  trainer.broadcast_tensors();
}

}  // namespace

int run_train(const MpiSession& session, const Options& options) {
  const Ranks ranks = open_ranks(session, options);
  Communicator& communicator = *ranks.communicator;

  // Rank 0 alone may see the run folder; what all need to know of the checkpoint travels as text.
  std::optional<Checkpoint> checkpoint;
  together(session, [&] {
    if (session.rank() == 0) checkpoint = find_resumed(options);
  });
  const std::string state_text = communicator.broadcast_text(checkpoint ? to_json(checkpoint->state) : "", 0);
  std::optional<TrainingState> resumed;
  if (!state_text.empty()) resumed = parse_state(state_text, "the checkpoint of rank 0");

  Experiment experiment = prepare_experiment(session, communicator, ranks.device, options, resumed,
                                             checkpoint ? model_copy_of(checkpoint->path) : fs::path());
  Signals signals;
  std::unique_ptr<Console> console;
  std::unique_ptr<RunOutput> output;
  together(session, [&] {
    if (session.rank() != 0) return;
    console = std::make_unique<Console>(options.output.progress);
    output = open_output(experiment, resumed, *console);
  });
  Trainer trainer(experiment, communicator, &signals, output.get(), resumed);
  if (resumed) load_tensors(session, checkpoint, experiment, trainer);
  if (console) {
    console->header(fmt::format("ddp_train {}", program_version()), header_rows(experiment, ranks, trainer, resumed));
  }
  return or_abort(session, [&] {
    const ExitCode code = trainer.run();
    const std::vector<PhaseTotals> phases = gather_phases(communicator, trainer.phase_totals());
    if (console) {
      std::vector<std::string> hosts;
      for (const Topology::Place& place : ranks.topology.ranks) hosts.push_back(place.host_name);
      console->summary(phases, hosts);
      if (code == ExitCode::stopped) {
        log_info("stopped by {} after step {}; go on with --resume auto",
                 signals.stop_reason().empty() ? "a request to another rank" : signals.stop_reason(),
                 trainer.steps_done());
      }
    }
    return static_cast<int>(code);
  });
}

}  // namespace ddp
