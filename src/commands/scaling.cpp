// ddp_train scaling: trains for seconds on 1, 2, 4, ... ranks of one job, and says what limits their speed-up.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/output.h"
#include "base/text/text.h"
#include "commands/commands.h"
#include "commands/measure/measure.h"
#include "commands/ranks.h"
#include "explain/scaling_report.h"
#include "explain/verdict.h"
#include "job/report.h"
#include "job/signals.h"
#include "options/batch.h"

namespace ddp {
namespace {

// Each measurement is made so often, in turns with the others, because other programs may come and go; the fastest counts.
constexpr int kScalingTurns = 3;
// Steps of a measurement.
constexpr std::int64_t kFewestSteps = 5;
constexpr std::int64_t kMostSteps = 20'000;
constexpr std::int64_t kFewestStepsOnGpus = 32;  // of which a few are in flight at both ends
constexpr const char* kDefaultFile = "scaling.svg";

// What one measurement trains.
struct Case {
  int ranks = 1;
  std::int64_t global_batch = 1;
  bool strong = false;
  bool weak = false;
  bool crowded = false;  // as many threads share a core as in the whole job
  RunTiming best = {};   // of the fastest turn; on all ranks of the job
  double message_seconds = std::numeric_limits<double>::infinity();
  std::string too_large = {};  // why it cannot be trained

  double seconds() const { return step_model(best).training(); }
  bool measured() const { return !best.ranks.empty(); }
};

// The threads of the first `ranks` on the machine of rank `on`.
std::int64_t threads_on(const RunFacts& facts, std::size_t on, std::size_t ranks) {
  std::int64_t threads = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (facts.machines[rank] == facts.machines[on]) threads += facts.threads[rank];
  }
  return threads;
}

// The CPUs that two ranks have on the machine of rank `on` if each CPU has as many threads as with all ranks.
std::int64_t crowded_cpus(const RunFacts& facts, std::size_t on) {
  const auto all = static_cast<double>(threads_on(facts, on, facts.machines.size()));
  const auto two = static_cast<double>(threads_on(facts, on, 2));
  return std::max<std::int64_t>(1, std::lround(two * static_cast<double>(facts.cpus[on]) / all));
}

std::vector<Case> cases_of(const RunFacts& facts, std::int64_t global_batch) {
  const auto size = static_cast<int>(facts.machines.size());
  const bool shares_cores = !facts.gpu && threads_on(facts, 0, facts.machines.size()) > facts.cpus[0];
  std::vector<Case> cases;
  for (int ranks = 1; ranks < 2 * size; ranks *= 2) {
    const int used = std::min(ranks, size);
    const std::int64_t part = std::max<std::int64_t>(used, global_batch * used / size);
    cases.push_back({.ranks = used, .global_batch = global_batch, .strong = true, .weak = part == global_batch});
    if (part != global_batch) cases.push_back({.ranks = used, .global_batch = part, .weak = true});
    // What it costs to wait for a rank that waits for a core.
    if (used == 2 && size > 2 && shares_cores && crowded_cpus(facts, 0) < facts.cpus[0]) {
      cases.push_back({.ranks = used, .global_batch = part, .crowded = true});
    }
  }
  return cases;
}

// The options of a run with this many counted steps.
Options options_of(const Options& given, const Case& what, int size, std::int64_t steps) {
  Options options = given;
  options.batch.global_batch = what.global_batch;
  options.batch.batch_per_rank.reset();
  options.batch.batch_size.reset();
  if (options.batch.logical_shards > 0 && !what.strong) {
    options.batch.logical_shards = std::max(what.ranks, options.batch.logical_shards * what.ranks / size);
  }
  options.optimizer.max_steps = steps + kWarmUpSteps;
  options.optimizer.epochs = std::max(options.optimizer.epochs, static_cast<double>(options.optimizer.max_steps));
  // The weights do not matter, and a smaller batch may need a smaller rate.
  options.optimizer.lr *= 1e-3;
  options.data.test_limit = 1;
  options.output.eval_every = 0;
  options.output.checkpoint_every = options.optimizer.max_steps + 1;
  options.output.trace = false;
  options.output.progress = ProgressStyle::none;
  return options;
}

// The time of a short message between two ranks: the exchange of a few bytes takes about log2(ranks) of them.
double time_message(Communicator& ranks) {
  constexpr int kBatches = 10;
  constexpr int kMessages = 20;
  if (ranks.size() == 1) return 0;
  double best = std::numeric_limits<double>::infinity();
  for (int batch = 0; batch < kBatches; ++batch) {
    const double begin = now();
    for (int i = 0; i < kMessages; ++i) ranks.barrier();
    best = std::min(best, (now() - begin) / kMessages);
  }
  int rounds = 0;
  while ((1 << rounds) < ranks.size()) ++rounds;
  return best / rounds;
}

class Study {
 public:
  Study(const MpiSession& session, const Options& options)
      : session_(session), options_(options), where_(open_ranks(session, options)) {
    log_device(where_.device);
    const std::int64_t global_batch = together(session, [&] {
      check(options.batch.logical_shards == 0 || options.batch.logical_shards >= session.size(), ExitCode::usage,
            "--logical-shards {} is fewer than the {} of this job", options.batch.logical_shards,
            counted(static_cast<std::uint64_t>(session.size()), "rank"));
      // The images are counted when they are opened.
      return resolve_batch(options.batch, session.size(), std::numeric_limits<std::int32_t>::max()).global_batch;
    });
    facts_.gpu = where_.device.gpu_module != nullptr;
    facts_ = or_abort(session, [&] { return complete_facts(facts_, where_, options); });
    cases_ = cases_of(facts_, global_batch);
  }

  void measure() {
    // Tells how many steps take long enough. It does not count: they are so few that those in flight distort their time.
    Case probe = cases_.front();
    measure_case(probe, fewest());
    if (probe.measured()) probed_ = probe.seconds() / static_cast<double>(probe.global_batch);
    cases_.front().too_large = probe.too_large;
    for (int turn = 0; turn < kScalingTurns; ++turn) {
      for (Case& each : cases_) {
        if (each.too_large.empty()) measure_case(each, steps_for(each));
      }
    }
  }

  const std::vector<Case>& cases() const { return cases_; }
  bool shares_gpus() const { return where_.device.through_host; }

 private:
  // Takes about --scaling-seconds in all turns.
  std::int64_t steps_for(const Case& next) const {
    if (next.measured()) return steps_in(next.seconds());
    double image = probed_;
    for (const Case& each : cases_) {
      if (image <= 0 && each.measured()) image = each.seconds() * each.ranks / static_cast<double>(each.global_batch);
    }
    return steps_in(image * static_cast<double>(next.global_batch) / next.ranks);
  }
  std::int64_t fewest() const { return facts_.gpu ? kFewestStepsOnGpus : kFewestSteps; }
  std::int64_t steps_in(double step) const {
    if (step <= 0) return fewest();
    return static_cast<std::int64_t>(std::clamp(options_.scaling.seconds / kScalingTurns / step,
                                                static_cast<double>(fewest()), static_cast<double>(kMostSteps)));
  }

  // The other ranks wait meanwhile, and learn the outcome from rank 0, which always takes part.
  void measure_case(Case& what, std::int64_t steps) {
    const std::unique_ptr<MpiSession> part = session_.of_first(what.ranks);
    std::string failure;
    ExitCode code = ExitCode::done;
    bool reports = false;
    std::string timing;
    double message = 0;
    if (part) {
      try {
        std::tie(timing, message) = train(*part, what, steps);
      } catch (const JointError& error) {
        failure = error.what();
        code = error.code();
        reports = error.reporter();
      } catch (const Error& error) {
        // A session of one rank, which is rank 0.
        failure = error.what();
        code = error.code();
        reports = true;
      }
    }
    Communicator& all = *where_.communicator;
    const bool failed = all.broadcast_text(failure.empty() ? "" : "failed", 0) == "failed";
    if (failed) {
      failure = all.broadcast_text(failure, 0);
      code = static_cast<ExitCode>(std::stoi(all.broadcast_text(std::to_string(static_cast<int>(code)), 0)));
      if (code != ExitCode::out_of_memory || what.ranks == session_.size()) throw JointError(code, failure, reports);
      what.too_large = failure;
      return;
    }
    RunTiming measured = parse_timing(all.broadcast_text(timing, 0), "the timing of rank 0");
    std::int64_t stop = Signals::current()->stop_requested() ? 1 : 0;
    all.all_reduce(std::span(&stop, 1), ReduceOp::max);
    if (stop != 0) throw JointError(ExitCode::stopped, "stopped; nothing was written", session_.rank() == 0);
    std::vector<double> seconds = {message};
    all.broadcast(std::as_writable_bytes(std::span(seconds)), 0);
    what.message_seconds = std::min(what.message_seconds, seconds[0]);
    if (!what.measured() || step_model(measured).training() < what.seconds()) what.best = std::move(measured);
  }

  std::pair<std::string, double> train(const MpiSession& part, const Case& what, std::int64_t steps) {
    Ranks ranks{of_first(where_.topology, what.ranks), where_.binding, part.ranks().duplicate(), where_.device};
    std::vector<int>& cpus = ranks.binding.cpus;
    std::optional<RestrictedTo> restricted;
    if (what.crowded) {
      const auto kept = static_cast<std::size_t>(crowded_cpus(facts_, static_cast<std::size_t>(part.rank())));
      cpus.resize(std::min(cpus.size(), kept));
      restricted.emplace(cpus);
    }
    const RunTiming timing = measure_training(part, ranks, options_of(options_, what, session_.size(), steps));
    if (timing.ranks[0].steps < 1) {
      throw JointError(ExitCode::stopped, "stopped; nothing was written", part.rank() == 0);
    }
    return {to_json(timing), or_abort(part, [&] { return time_message(*ranks.communicator); })};
  }

  const MpiSession& session_;
  const Options& options_;
  Ranks where_;
  RunFacts facts_;  // of where the ranks are
  std::vector<Case> cases_;
  double probed_ = 0;  // seconds for each image on one rank; 0: not known
};

ScalingStudy study_of(const Study& measured, const Options& options) {
  const std::vector<Case>& cases = measured.cases();
  ScalingStudy study;
  study.shares_gpus = measured.shares_gpus();
  study.title = fmt::format("{}, {}", options.model.model, to_string(options.model.precision));
  study.root = options.distributed.reduction == Reduction::root;
  for (const Case& each : cases) {
    if (!each.measured()) continue;
    const ScalingPoint point = scaling_point(each.best, each.message_seconds);
    if (each.strong) study.strong.push_back(point);
    if (each.weak) study.weak.push_back(point);
    if (each.crowded) study.crowded.push_back(point);
  }
  if (study.strong.front().layout.ranks == 1) return study;
  // The whole batch does not fit into the memory of one rank.
  std::vector<ScalingPoint> points = study.strong;
  points.insert(points.end(), study.weak.begin(), study.weak.end());
  points.insert(points.end(), study.crowded.begin(), study.crowded.end());
  ScalingPoint one = study.weak.front();
  one.layout.global_batch = study.strong.front().layout.global_batch;
  one.step = fit_scaling(points, study.root).predict(one.layout);
  study.strong.insert(study.strong.begin(), one);
  study.one_predicted = true;
  return study;
}

}  // namespace

int run_scaling(const MpiSession& session, const Options& options) {
  Study measured(session, options);
  measured.measure();
  together(session, [&] {
    if (session.rank() != 0) return;
    const std::vector<Case>& cases = measured.cases();
    const auto all = std::find_if(cases.begin(), cases.end(),
                                  [&](const Case& it) { return it.strong && it.ranks == session.size(); });
    const ScalingStudy study = study_of(measured, options);
    print_text("{}", scaling_text(study));
    if (session.size() > 1) {
      const std::string file = options.exported.to.empty() ? kDefaultFile : options.exported.to;
      replace_file(file, scaling_svg(study), ExitCode::checkpoint);
      print_text("the curve is in {}\n", file);
    }
    print_text("{}\n", scaling_answer(study, explain(all->best, options).cures));
  });
  return static_cast<int>(ExitCode::done);
}

}  // namespace ddp
