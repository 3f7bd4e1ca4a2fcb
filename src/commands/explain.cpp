// ddp_train explain RUN: what limits the speed of a run, from its timing.json; with --verify N also what the best cure
// really gains.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/output.h"
#include "base/text/text.h"
#include "commands/commands.h"
#include "commands/measure/measure.h"
#include "commands/measure/step_probe.h"
#include "explain/verdict.h"
#include "job/report.h"
#include "job/signals.h"
#include "metrics/timing.h"
#include "options/parse.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

// A run and its stored options.
struct MeasuredRun {
  RunTiming timing;
  Options options;
};

// The options of a run, with others in the place of some of them.
Options stored_options(const fs::path& folder, const std::vector<std::pair<std::string, std::string>>& changed) {
  std::vector<std::string> words = {"--config", (folder / "config.cfg").string()};
  for (const auto& [key, value] : changed) {
    words.push_back("--" + key);
    words.push_back(value);
  }
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  return parse_options(arguments);
}

MeasuredRun read_run(const fs::path& folder) {
  MeasuredRun run;
  run.timing = read_timing(folder);
  check(run.timing.ranks[0].steps >= 1, ExitCode::checkpoint, "{}: the run was too short to be measured; train longer",
        folder.string());
  run.options = stored_options(folder, {});
  return run;
}

// `steps` steps that count; the schedule keeps its epochs if they are enough.
Options for_steps(Options options, std::int64_t steps, std::int64_t steps_per_epoch) {
  options.optimizer.max_steps = steps + kWarmUpSteps;
  const std::int64_t epochs = options.optimizer.max_steps / std::max<std::int64_t>(1, steps_per_epoch) + 1;
  options.optimizer.epochs = std::max(options.optimizer.epochs, static_cast<double>(epochs));
  return options;
}

struct Speed {
  double seconds = 0;  // of the steps that count
  double images = 0;
  double steps = 0;
  double rate() const { return images / seconds; }
};

// With `pauses` seconds of evaluations and checkpoints for each image; nullopt: as measured.
void add(Speed& speed, const RunTiming& timing, std::optional<double> pauses) {
  const StepModel model = step_model(timing);
  const double images = model.steps * static_cast<double>(timing.facts.global_batch);
  speed.seconds += pauses ? model.steps * model.training() + *pauses * images : model.steps * model.seconds();
  speed.images += images;
  speed.steps += model.steps;
}

// The run as it was and with the cure, in turns, because other programs may come and go.
int verify(const MpiSession& session, const MeasuredRun& run, const Explanation& found, const Options& given) {
  constexpr int kTurns = 2;
  if (found.cures.empty()) {
    if (session.rank() == 0) print_text("nothing to verify: there is no option that would help\n");
    return static_cast<int>(ExitCode::done);
  }
  const Cure& cure = found.cures.front();
  // Short runs have too many evaluations and checkpoints for their steps. Unless these are the cause, they count as often
  // as in the run.
  std::optional<double> pauses;
  if (found.cause != Cause::evaluation && found.cause != Cause::checkpoint) {
    pauses = (found.model.evaluation + found.model.checkpoint) / static_cast<double>(run.timing.facts.global_batch);
  }
  const std::int64_t steps = std::max<std::int64_t>(1, given.explain.verify / kTurns);
  const std::int64_t per_epoch = run.timing.facts.steps_per_epoch;
  const Options before = for_steps(run.options, steps, per_epoch);
  const Options after = for_steps(together(session, [&] { return stored_options(given.folders[0], cure.options); }),
                                  steps, std::max<std::int64_t>(1, per_epoch / 4));
  Speed was;
  Speed is;
  const fs::path folder = fs::path(given.folders[0]) / "verify";
  for (int turn = 0; turn < kTurns; ++turn) {
    add(was, measure_training(session, before, folder), pauses);
    add(is, measure_training(session, after, folder), pauses);
    if (Signals::current()->stop_requested()) return static_cast<int>(ExitCode::stopped);
  }
  if (session.rank() == 0) {
    const double measured = is.rate() / was.rate();
    print_text(
        "verified: {}: {:.2f}x images/s measured, {}{:.2f}x predicted; {:.3g} instead of {:.3g} ms per step, in {} "
        "steps each\n",
        cure.text(), measured, cure.lower_bound ? "at least " : "", cure.speedup, 1e3 * is.seconds / is.steps,
        1e3 * was.seconds / was.steps, format_count(static_cast<std::uint64_t>(was.steps)));
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace

int run_explain(const MpiSession& session, const Options& options) {
  const fs::path folder = options.folders[0];
  const MeasuredRun run = together(session, [&] { return read_run(folder); });
  const auto ranks = static_cast<int>(run.timing.ranks.size());
  together(session, [&] {
    check(options.explain.verify == 0 || session.size() == ranks, ExitCode::usage,
          "--verify trains as the run did, on {}, but this job has {}; start it with mpirun -np {}",
          counted(static_cast<std::uint64_t>(ranks), "rank"), session.size(), ranks);
    check(options.explain.verify == 0 || session.rank() != 0 || !run_goes_on(folder), ExitCode::usage,
          "{}: --verify trains while the run itself is still going on, and would measure both; wait until it has ended",
          folder.string());
  });
  StepProber prober(session, run.timing, run.options, folder);
  const Explanation found = explain(run.timing, run.options, options.explain.probe ? prober.probe() : StepProbe());
  if (session.rank() == 0) {
    if (!run.timing.complete) {
      print_text("the run has not ended, or was stopped; measured until step {}\n", run.timing.step);
    }
    print_text("{}", describe(found));
    const bool bounds =
        std::any_of(found.cures.begin(), found.cures.end(), [](const Cure& c) { return c.lower_bound; });
    if (bounds) {
      print_text("'at least', since it was not measured: {}\n",
                 options.explain.probe ? prober.problem() : "--probe off");
    }
  }
  return options.explain.verify == 0 ? static_cast<int>(ExitCode::done) : verify(session, run, found, options);
}

}  // namespace ddp
