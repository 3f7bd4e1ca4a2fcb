#include "explain/rank_findings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/balanced_counts.h"
#include "base/partition.h"
#include "base/text/text.h"

namespace ddp {
namespace {

// Share of a step that is lost because the work of the slowest rank takes longer than that of an average one; more than the
// cores of a machine with busy neighbours differ.
constexpr double kMuchSlower = 0.1;
constexpr double kMuchThrottled =
    0.15;  // of its highest clock, that a GPU lacks; power limits of a few percent are usual
constexpr double kOftenThrottled = 0.5;  // of the samples, in which heat or power reduce the clock
constexpr double kSlowLoader = 1.5;      // times the others' mean, that a rank takes to load a batch
constexpr double kMoreCoreWait =
    0.1;                            // of the time, that a rank's threads wait for a core more than those of the others
constexpr double kCoreWait = 0.25;  // of the time, that threads wait for a core
constexpr std::int64_t kShardsPerRank = 8;  // with which --balance on can divide the work finely

// The share of the time in which a compute thread waits for a core, at most 1.
double core_wait_share(const RunView& view, std::size_t rank) {
  const RankTiming& timing = view.timing.ranks[rank];
  const double threads = static_cast<double>(std::max<std::int64_t>(1, view.timing.facts.threads[rank]));
  const double wall = timing.phases.sum();
  return wall > 0 ? std::min(1.0, timing.core_wait / threads / wall) : 0;
}

double least_core_wait_share(const RunView& view) {
  double least = 1;
  for (std::size_t rank = 0; rank < view.timing.ranks.size(); ++rank) {
    least = std::min(least, core_wait_share(view, rank));
  }
  return least;
}

// The phase in which the slowest rank exceeds the others most.
Phase slow_phase(const RunView& view, std::size_t slowest) {
  constexpr std::array kOwn = {Phase::data_wait, Phase::forward, Phase::backward, Phase::optimizer, Phase::other};
  PhaseTotals mean;
  for (const RankTiming& rank : view.timing.ranks) mean += rank.phases;
  const auto excess = [&](Phase phase) {
    return view.timing.ranks[slowest].phases[phase] - mean[phase] / static_cast<double>(view.ranks);
  };
  return *std::max_element(kOwn.begin(), kOwn.end(), [&](Phase a, Phase b) { return excess(a) < excess(b); });
}

double others_core_wait(const RunView& view, std::size_t rank) {
  double sum = 0;
  for (std::size_t i = 0; i < view.timing.ranks.size(); ++i) {
    if (i != rank) sum += core_wait_share(view, i) / static_cast<double>(view.ranks - 1);
  }
  return sum;
}

// What a GPU lacks of its highest clock because of heat or power, as a share; 0 if it does not lack much.
double throttled_share(const GpuClockCounts& clock) {
  if (clock.samples == 0 || std::max(clock.heat, clock.power) < kOftenThrottled * clock.samples) return 0;
  const double lacking = 1 - clock.speed / clock.samples;
  return lacking >= kMuchThrottled ? lacking : 0;
}

bool explained_by_shares(const RunView& view) {
  const SlowestRank& slowest = view.slowest;
  const std::vector<std::int64_t>& samples = view.timing.facts.samples;
  const double mean = static_cast<double>(view.timing.facts.global_batch) / static_cast<double>(view.ranks);
  const double more = static_cast<double>(samples[slowest.rank]) / mean - 1;
  return more > 0.02 && slowest.seconds / slowest.others - 1 < 3 * more;
}

// The work of a rank in a step that grows with the number of its shards.
double work_of_shards(const RankTiming& rank) {
  return (rank.phases[Phase::data_wait] + rank.phases[Phase::forward] + rank.phases[Phase::backward]) /
         std::max(1.0, rank.steps);
}

// Shards divided by the speed of the ranks; nullopt if there is nothing to divide, or hardly a gain.
std::optional<Cure> balance_cure(const RunView& view) {
  const RunFacts& facts = view.timing.facts;
  if (facts.shards <= view.ranks || view.options.batch.balance) return std::nullopt;
  if (splits_linear(view.options.distributed)) return std::nullopt;
  std::vector<double> speeds;
  for (std::size_t rank = 0; rank < view.timing.ranks.size(); ++rank) {
    const auto shards = static_cast<double>(part(facts.shards, view.ranks, static_cast<std::int64_t>(rank)).size());
    speeds.push_back(shards / std::max(1e-9, work_of_shards(view.timing.ranks[rank])));
  }
  const std::vector<std::int64_t> counts = balanced_counts(facts.shards, speeds);
  double longest = 0;
  double mean = 0;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    const RankTiming& timing = view.timing.ranks[rank];
    const double fixed = rank_work(timing.phases) / std::max(1.0, timing.steps) - work_of_shards(timing);
    const double own = static_cast<double>(counts[rank]) / speeds[rank] + fixed;
    longest = std::max(longest, own);
    mean += own / static_cast<double>(view.ranks);
  }
  if (longest > (1 - kLeastBalancingGain) * view.slowest.seconds) return std::nullopt;
  StepModel cured = view.model;
  cured.compute += mean - view.slowest.mean;
  cured.imbalance = std::max(0.0, cured.imbalance + (longest - mean) - (view.slowest.seconds - view.slowest.mean));
  return view.cure({{"balance", "on"}}, cured);
}

}  // namespace

bool slowest_lacks_core(const RunView& view) {
  if (view.ranks < 2) return false;
  const std::size_t slowest = view.slowest.rank;
  return core_wait_share(view, slowest) > others_core_wait(view, slowest) + kMoreCoreWait;
}

bool sums_lack_cores(const RunView& view) {
  const std::vector<std::string>& hosts = view.timing.facts.hosts;
  const bool one_host = std::all_of(hosts.begin(), hosts.end(), [&](const auto& host) { return host == hosts[0]; });
  return one_host && !view.timing.facts.gpu && least_core_wait_share(view) >= kCoreWait;
}

bool one_slow_loader(const RunView& view) {
  double sum = 0;
  double longest = 0;
  int loaders = 0;
  for (std::size_t r = 0; r < view.timing.ranks.size(); ++r) {
    if (!view.loads(r)) continue;
    const LoaderCounts& loader = view.timing.ranks[r].loader;
    const double busy = loader.busy_seconds / std::max(1.0, loader.batches);
    sum += busy;
    longest = std::max(longest, busy);
    ++loaders;
  }
  return loaders > 1 && longest > kSlowLoader * (sum - longest) / (loaders - 1);
}

void find_throttling(const RunView& view, std::vector<FoundCause>& found) {
  const std::vector<RankTiming>& ranks = view.timing.ranks;
  const auto slowest = std::max_element(ranks.begin(), ranks.end(), [](const RankTiming& a, const RankTiming& b) {
    return throttled_share(a.gpu_clock) < throttled_share(b.gpu_clock);
  });
  const GpuClockCounts& clock = slowest->gpu_clock;
  const double lacking = throttled_share(clock);
  if (lacking == 0) return;
  const auto rank = static_cast<std::size_t>(slowest - ranks.begin());
  const auto throttled = std::count_if(ranks.begin(), ranks.end(),
                                       [](const RankTiming& each) { return throttled_share(each.gpu_clock) > 0; });
  // The others wait for it, so that its clock limits all ranks.
  FoundCause finding{.cause = Cause::throttled};
  finding.share = lacking * view.share(rank_work(slowest->phases) / std::max(1.0, slowest->steps));
  const bool heat = clock.heat >= clock.power;
  finding.headline =
      fmt::format("the GPU of rank {} on {} runs at {} of its highest clock because of {}", rank,
                  view.timing.facts.hosts[rank], percent(1 - lacking), heat ? "heat" : "its power limit or supply");
  finding.evidence.push_back(fmt::format(
      "heat reduces its clock in {} of {:.0f} samples, power in {}; such GPUs: {} of {}",
      percent(clock.heat / clock.samples), clock.samples, percent(clock.power / clock.samples), throttled, view.ranks));
  finding.advice = heat ? "check fans, air flow and neighbours of this GPU; 'ddp_train devices' shows its temperature"
                        : "raise its power limit (nvidia-smi --power-limit), or check the power supply";
  found.push_back(std::move(finding));
}

void find_stragglers(const RunView& view, std::vector<FoundCause>& found) {
  if (view.ranks < 2) return;
  const SlowestRank& slowest = view.slowest;
  if (throttled_share(view.timing.ranks[slowest.rank].gpu_clock) > 0) return;  // then that is the cause
  // A rank without a core also sends late: its part of the communication is no matter of the network.
  const bool lacks_core = slowest_lacks_core(view);
  const double share = view.share(slowest.seconds - slowest.mean + (lacks_core ? view.model.communication : 0));
  if (share < kMuchSlower) return;
  // Loaders that are all too slow make one rank the last one: the data are the cause.
  if (slow_phase(view, slowest.rank) == Phase::data_wait && !one_slow_loader(view)) return;
  const RunFacts& facts = view.timing.facts;
  FoundCause finding{.cause = Cause::straggler, .share = share};
  const double slower = slowest.others > 0 ? slowest.seconds / slowest.others : 1;
  if (explained_by_shares(view)) {
    finding.cause = Cause::uneven_shards;
    finding.headline = fmt::format("rank {} computes {} samples of a step, {:.2f} times the others' mean", slowest.rank,
                                   facts.samples[slowest.rank], slower);
    StepModel cured = view.model;
    cured.imbalance = std::max(0.0, cured.imbalance - (slowest.seconds - slowest.mean));
    const std::int64_t even = (facts.shards + view.ranks - 1) / view.ranks * view.ranks;
    if (even != facts.shards) {
      finding.cures.push_back(view.cure({{"logical-shards", std::to_string(even)}}, cured));
      finding.cures.back().changes_training = true;
    }
    finding.advice = "choose a global batch and logical shards that the number of ranks divides";
    found.push_back(std::move(finding));
    return;
  }
  finding.headline =
      fmt::format("rank {} on {} takes {:.2f} times as long as the others, most of it in {}", slowest.rank,
                  facts.hosts[slowest.rank], slower, phase_label(slow_phase(view, slowest.rank)));
  const RankTiming& rank = view.timing.ranks[slowest.rank];
  finding.evidence.push_back(
      fmt::format("its own work takes {:.3g} ms of a step, the others' {:.3g} ms; at its best it "
                  "took {:.3g} ms",
                  slowest.seconds * 1e3, slowest.others * 1e3, rank.best_work * 1e3));
  double intervals = 0;
  for (const RankTiming& each : view.timing.ranks) intervals += each.slowest;
  if (intervals > 1) {
    finding.evidence.push_back(
        fmt::format("it was the slowest rank in {:.0f} of {:.0f} intervals of the run", rank.slowest, intervals));
  }
  if (lacks_core) {
    finding.evidence.push_back(fmt::format("its threads wait for a core {} of the time, the others' {}",
                                           percent(core_wait_share(view, slowest.rank)),
                                           percent(others_core_wait(view, slowest.rank))));
    finding.advice =
        fmt::format("end the other programs on the cores of rank {} on {}", slowest.rank, facts.hosts[slowest.rank]);
  } else {
    finding.advice = fmt::format("compare {} with the other hosts: clocks, memory, other programs, --log-placement",
                                 facts.hosts[slowest.rank]);
    const Phase slow = slow_phase(view, slowest.rank);
    const bool divisible = slow == Phase::data_wait || slow == Phase::forward || slow == Phase::backward;
    if (const std::optional<Cure> balanced = divisible ? balance_cure(view) : std::nullopt) {
      finding.cures.push_back(*balanced);
    } else if (divisible && facts.shards == view.ranks && !view.options.model.sync_batch_norm &&
               !splits_linear(view.options.distributed)) {
      finding.advice += fmt::format("; --logical-shards {} --balance on would give a slow rank fewer samples",
                                    kShardsPerRank * view.ranks);
    }
  }
  found.push_back(std::move(finding));
}

void find_oversubscription(const RunView& view, std::vector<FoundCause>& found) {
  const RunFacts& facts = view.timing.facts;
  std::map<std::int64_t, std::int64_t> threads;
  std::map<std::int64_t, std::int64_t> ranks;
  std::map<std::int64_t, std::set<std::string>> hosts;
  const double least_wait = least_core_wait_share(view);
  for (std::size_t rank = 0; rank < view.timing.ranks.size(); ++rank) {
    threads[facts.machines[rank]] += facts.threads[rank];
    ranks[facts.machines[rank]] += 1;
    hosts[facts.machines[rank]].insert(facts.hosts[rank]);
  }
  for (std::size_t rank = 0; rank < view.timing.ranks.size(); ++rank) {
    const std::int64_t machine = facts.machines[rank];
    const std::int64_t cpus = facts.cpus[rank];
    if (threads[machine] <= cpus || least_wait < kCoreWait) continue;
    FoundCause finding{.cause = Cause::oversubscribed};
    finding.share = 1 - static_cast<double>(cpus) / static_cast<double>(threads[machine]);
    const std::string where = hosts[machine].size() == 1
                                  ? "on " + facts.hosts[rank]
                                  : fmt::format("of the machine on which {} run", fmt::join(hosts[machine], ", "));
    finding.headline = fmt::format("{} compute threads share {} {}", threads[machine],
                                   counted(static_cast<std::uint64_t>(cpus), "core"), where);
    finding.evidence.push_back(
        fmt::format("every thread waits for a core at least {} of the time", percent(least_wait)));
    const std::int64_t fair = std::max<std::int64_t>(1, cpus / ranks[machine]);
    if (facts.threads[rank] > fair) {
      // The same work, without waiting for one another: not faster than the cores are busy.
      const double floor = cpu_floor(view.timing);
      StepModel cured = view.model;
      const double gone = std::max(0.0, std::min(cured.imbalance + cured.communication, cured.seconds() - floor));
      cured.imbalance -= std::min(cured.imbalance, gone);
      finding.cures.push_back(view.cure({{"threads", std::to_string(fair)}}, cured));
      finding.cures.back().lower_bound = true;  // threads that wait for others without a core use processor time, too
    } else {
      finding.advice = "start at most as many ranks on a host as it has cores";
    }
    found.push_back(std::move(finding));
    return;
  }
  if (least_wait < kCoreWait || view.timing.facts.gpu) return;
  FoundCause finding{.cause = Cause::oversubscribed, .share = least_wait};
  finding.headline =
      fmt::format("other programs use the cores: every thread waits for one {} of the time", percent(least_wait));
  finding.advice = "end them, or start fewer ranks or threads";
  found.push_back(std::move(finding));
}

}  // namespace ddp
