#include "metrics/time_summary.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace ddp {
namespace {

constexpr std::array<Phase, 4> kOwnWork = {Phase::data_wait, Phase::forward, Phase::backward, Phase::optimizer};
// Below this the ranks count as equally fast.
constexpr double kEven = 0.01;

PhaseTotals mean_of(std::span<const PhaseTotals> ranks) {
  PhaseTotals mean;
  for (const PhaseTotals& rank : ranks) mean += rank;
  for (double& seconds : mean.seconds) seconds /= static_cast<double>(ranks.size());
  return mean;
}

double own_work(const PhaseTotals& totals) {
  double seconds = 0;
  for (const Phase phase : kOwnWork) seconds += totals[phase];
  return seconds;
}

double excess(double value, double mean) { return mean > 0 ? value / mean - 1 : 0; }

// "12%", and below ten percent "1.2%".
std::string percent_text(double fraction) { return fmt::format("{:.{}f}%", fraction * 100, fraction < 0.1 ? 1 : 0); }

}  // namespace

SlowestRank slowest_rank(std::span<const PhaseTotals> ranks) {
  DDP_ASSERT(!ranks.empty());
  const PhaseTotals mean = mean_of(ranks);
  const auto slowest = std::max_element(
      ranks.begin(), ranks.end(), [](const PhaseTotals& a, const PhaseTotals& b) { return own_work(a) < own_work(b); });
  const Phase phase = *std::max_element(kOwnWork.begin(), kOwnWork.end(), [&](Phase a, Phase b) {
    return (*slowest)[a] - mean[a] < (*slowest)[b] - mean[b];
  });
  return {static_cast<int>(slowest - ranks.begin()), phase, excess((*slowest)[phase], mean[phase]),
          excess(own_work(*slowest), own_work(mean))};
}

std::string time_table(std::span<const PhaseTotals> ranks) {
  DDP_ASSERT(!ranks.empty());
  const PhaseTotals mean = mean_of(ranks);
  const double wall = mean.sum();
  const int digits = wall < 10 ? 3 : wall < 1000 ? 2 : 1;
  const auto row = [&](const std::string& label, double seconds) {
    return fmt::format("  {:<22}{:>10.{}f} s{:>9.1f}%", label, seconds, digits, wall > 0 ? seconds / wall * 100 : 0);
  };
  const bool several = ranks.size() > 1;
  std::string table = fmt::format("{:<24}{:>12}{:>10}{}\n", "time by phase", several ? "mean" : "time", "of wall",
                                  several ? "     longest" : "");
  for (const Phase phase : kPhases) {
    table += row(phase_label(phase), mean[phase]);
    const auto longest = std::max_element(
        ranks.begin(), ranks.end(), [&](const PhaseTotals& a, const PhaseTotals& b) { return a[phase] < b[phase]; });
    // A phase that no rank was in has no longest.
    if (several && (*longest)[phase] > 0) {
      table += fmt::format("{:>10.{}f} s  rank {}", (*longest)[phase], digits, longest - ranks.begin());
    }
    table += "\n";
  }
  return table + row("wall", wall) + "\n";
}

std::string slowest_rank_text(std::span<const PhaseTotals> ranks, std::span<const std::string> hosts) {
  DDP_ASSERT(hosts.size() == ranks.size());
  if (ranks.size() < 2) return "";
  const SlowestRank slowest = slowest_rank(ranks);
  return fmt::format("slowest rank: {} on {} ({} {} above the mean){}", slowest.rank,
                     hosts[static_cast<std::size_t>(slowest.rank)], phase_label(slowest.phase),
                     percent_text(slowest.phase_excess), slowest.excess < kEven ? "; the ranks are even" : "");
}

}  // namespace ddp
