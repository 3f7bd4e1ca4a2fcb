#include "metrics/display/time_summary.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/text/text.h"

namespace ddp {
namespace {

constexpr std::array<Phase, 4> kOwnWork = {Phase::data_wait, Phase::forward, Phase::backward, Phase::optimizer};
// Fractions of the wall time: below the first the ranks count as balanced, above the second the network is mentioned.
constexpr double kEven = 0.01;
constexpr double kMuchCommunication = 0.1;

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

double share(double seconds, double wall) { return wall > 0 ? seconds / wall : 0; }

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
  const auto least = std::min_element(ranks.begin(), ranks.end(), [](const PhaseTotals& a, const PhaseTotals& b) {
    return a[Phase::exposed_communication] < b[Phase::exposed_communication];
  });
  const double seconds = own_work(*slowest) - own_work(mean);
  return {static_cast<int>(slowest - ranks.begin()), phase, seconds, share(seconds, mean.sum()),
          share((*least)[Phase::exposed_communication], mean.sum())};
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
    // A phase without time has no longest rank.
    if (several && (*longest)[phase] > 0) {
      table += fmt::format("{:>10.{}f} s  rank {}", (*longest)[phase], digits, longest - ranks.begin());
    }
    table += '\n';
  }
  return table + row("wall", wall) + "\n";
}

std::string time_line(std::span<const PhaseTotals> ranks) {
  DDP_ASSERT(!ranks.empty());
  constexpr double kWorthNaming = 0.01;
  const PhaseTotals mean = mean_of(ranks);
  const double wall = mean.sum();
  std::vector<Phase> phases(kPhases.begin(), kPhases.end());
  std::stable_sort(phases.begin(), phases.end(), [&](Phase a, Phase b) { return mean[a] > mean[b]; });
  std::string text = "time by phase    ";
  for (const Phase phase : phases) {
    const double part = share(mean[phase], wall);
    if (part >= kWorthNaming) text += fmt::format("{} {}, ", phase_label(phase), percent_text(part));
  }
  return text + fmt::format("of {}; --summary full shows all\n", format_duration(wall));
}

std::string slowest_rank_text(std::span<const PhaseTotals> ranks, std::span<const std::string> hosts) {
  if (ranks.size() < 2 || hosts.empty()) return "";
  DDP_ASSERT(hosts.size() == ranks.size());
  const SlowestRank slowest = slowest_rank(ranks);
  const std::string& host = hosts[static_cast<std::size_t>(slowest.rank)];
  std::string text = fmt::format("the ranks are balanced: rank {} on {} is {} of the wall time above the mean",
                                 slowest.rank, host, percent_text(slowest.share));
  if (slowest.share >= kEven) {
    text = fmt::format("slowest rank: {} on {}, {} above the mean, {} of the wall time ({})", slowest.rank, host,
                       format_duration(slowest.seconds), percent_text(slowest.share), phase_label(slowest.phase));
  }
  const bool one_host = std::all_of(hosts.begin(), hosts.end(), [&](const std::string& each) { return each == host; });
  if (slowest.network_share >= kMuchCommunication && !one_host) {
    text += fmt::format("; {} of it is communication; 'ddp_train check' on the same hosts measures each link",
                        percent_text(slowest.network_share));
  }
  return text;
}

}  // namespace ddp
