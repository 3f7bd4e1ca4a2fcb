#include "commands/measure/step_probe.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/host.h"
#include "commands/measure/step_timer.h"
#include "commands/ranks.h"
#include "job/joint_error.h"
#include "job/report.h"
#include "metrics/process_times.h"
#include "run_folder/lock_owner.h"
#include "run_folder/run_lock.h"
#include "train/loop/trainer.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

// Other programs may come and go: the shapes are measured in turns, of which the fastest counts.
constexpr int kTurns = 3;
constexpr TimerSettings kShort = {.warm_up = 0.1, .stretch = 0.15};
constexpr int kStretchesPerTurn = 2;

// A device's description without the number of threads.
std::string processor_of(const std::string& device) {
  return device.ends_with(" per rank") ? device.substr(0, device.rfind(", ")) : device;
}

}  // namespace

bool run_goes_on(const fs::path& folder) {
  std::error_code error;
  const fs::path lock = folder / kLockFile;
  if (!fs::exists(lock, error)) return false;
  constexpr std::uint64_t kMostLockBytes = 65536;
  const std::optional<LockOwner> owner = parse_owner(read_text(lock, ExitCode::checkpoint, kMostLockBytes));
  return !owner || !same_machine(*owner, this_process()) || lives(*owner);
}

StepProber::StepProber(const MpiSession& session, const RunTiming& timing, const Options& options,
                       const fs::path& folder)
    : session_(session), timing_(timing), options_(options) {
  // The lowest rank for which something is in the way says what.
  for (const std::string& mine : session.ranks().all_gather_text(obstacle(folder), "what the probe lacks")) {
    if (problem_.empty()) problem_ = mine;
  }
}

StepProbe StepProber::probe() {
  return [this](std::span<const StepShape> shapes) { return measure(shapes); };
}

std::string StepProber::obstacle(const fs::path& folder) const {
  const RunFacts& facts = timing_.facts;
  if (session_.size() > static_cast<int>(facts.hosts.size())) return "this job has more ranks than the run";
  if (facts.pipeline.stages > 1) return "the stages of a pipeline cannot be measured by themselves";
  if (std::find(facts.hosts.begin(), facts.hosts.end(), host_name()) == facts.hosts.end()) {
    return fmt::format("the run was on other hosts than {}", host_name());
  }
  try {
    if (session_.rank() == 0 && run_goes_on(folder)) return "the run is still going on";
  } catch (const Error& unreadable) {
    return unreadable.what();
  }
  return "";
}

Options StepProber::options_of(const StepShape& shape) const {
  const RunFacts& facts = timing_.facts;
  const std::int64_t ranks = session_.size();
  Options options = options_;
  options.distributed.threads = static_cast<int>(shape.threads);
  options.batch.batch_size.reset();
  options.batch.batch_per_rank.reset();
  options.batch.global_batch = shape.batch_per_rank * ranks;
  options.batch.balance = false;
  if (options.batch.logical_shards > 0) {
    const std::int64_t shards = facts.shards * ranks / static_cast<std::int64_t>(facts.hosts.size());
    options.batch.logical_shards = static_cast<int>(std::clamp(shards, ranks, *options.batch.global_batch));
  }
  // Random weights are as fast, and must stay finite.
  options.model.init_from.clear();
  options.optimizer.lr *= 1e-3;
  options.data.mixup = 0;
  options.data.cutmix = 0;
  options.output.recording = false;
  return with_one_batch(at_full_size(options), session_.size());
}

ProbedStep StepProber::time_step(const StepShape& shape) {
  const Options options = options_of(shape);
  const Ranks ranks = open_ranks(session_, options);
  Communicator& communicator = *ranks.communicator;
  PreparedRun prepared(session_, communicator, ranks.device, options, {.data = DataUse::sample});
  together(session_, [&] {
    const std::string here = prepared.backend->ops().traits().description;
    check(session_.rank() != 0 || processor_of(here) == processor_of(timing_.facts.device), ExitCode::preflight,
          "the run computed on another device, {}; this is {}", timing_.facts.device, here);
  });
  return or_abort(session_, [&] {
    TrainingRun run(prepared);
    const HeldBatch held(prepared);
    Trainer trainer(prepared, run, prepared.job.options, nullptr, nullptr);
    StepTimer timer(session_, communicator, trainer, held.batch(), kShort);
    const double waited_before = thread_core_wait();
    timer.measure(kStretchesPerTurn);
    const PhaseTotals& phases = timer.phases();
    // On a CPU other programs may take the core meanwhile.
    const double waited = timing_.facts.gpu ? 0 : (thread_core_wait() - waited_before) / phases.sum();
    const double scale = std::clamp(1 - waited, 0.0, 1.0) / static_cast<double>(timer.steps() * session_.size());
    std::array<double, 2> sums = {scale * (phases[Phase::forward] + phases[Phase::backward]),
                                  scale * phases[Phase::optimizer]};
    communicator.all_reduce(std::span(sums), ReduceOp::sum);
    return ProbedStep{sums[0], sums[1]};
  });
}

std::optional<std::vector<ProbedStep>> StepProber::measure(std::span<const StepShape> shapes) {
  if (!problem_.empty()) return std::nullopt;
  try {
    std::vector<ProbedStep> best(shapes.size());
    for (int turn = 0; turn < kTurns; ++turn) {
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        const ProbedStep step = time_step(shapes[i]);
        if (turn == 0 || step.compute < best[i].compute) best[i] = step;
      }
    }
    return best;
  } catch (const Error& failed) {
    // A failure of one rank is one of all ranks (job/report.h).
    if (failed.code() == ExitCode::stopped) throw;
    problem_ = failed.what();
    return std::nullopt;
  }
}

}  // namespace ddp
