#include "train/parallel/balance.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "base/balanced_counts.h"
#include "base/error.h"
#include "base/partition.h"
#include "base/text/text.h"

namespace ddp {
namespace {

// Seconds of the slowest rank.
double step_seconds(std::span<const std::int64_t> counts, std::span<const double> speeds) {
  double longest = 0;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    longest = std::max(longest, static_cast<double>(counts[rank]) / speeds[rank]);
  }
  return longest;
}

std::string counts_text(std::span<const std::int64_t> counts) {
  std::vector<std::string> words;
  for (const std::int64_t count : counts) words.push_back(std::to_string(count));
  return join(words);
}

}  // namespace

Balance::Balance(std::int64_t shards, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) first_.push_back(part(shards, ranks, rank).size());
  counts_ = first_;
}

void Balance::note_step(double own_seconds) {
  if (skipped_ < kWarmUp) {
    ++skipped_;
    return;
  }
  ++steps_;
  own_seconds_ += own_seconds;
}

std::optional<std::vector<std::int64_t>> Balance::decide(Communicator& ranks) {
  DDP_ASSERT(due());
  const double own = std::max(own_seconds_, 1e-9);
  std::vector<double> speeds(counts_.size());
  ranks.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(speeds)));
  for (std::size_t rank = 0; rank < speeds.size(); ++rank) {
    speeds[rank] = static_cast<double>(counts_[rank]) * steps_ / speeds[rank];
  }
  steps_ = 0;
  own_seconds_ = 0;
  std::vector<std::int64_t> counts =
      balanced_counts(std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0}), speeds);
  const bool worthwhile = step_seconds(counts, speeds) <= (1 - kLeastBalancingGain) * step_seconds(counts_, speeds);
  if (worthwhile) counts_ = counts;
  // At the same speeds, since these may change from minute to minute.
  seconds_before_ = step_seconds(first_, speeds);
  seconds_after_ = step_seconds(counts_, speeds);
  if (!worthwhile) return std::nullopt;
  skipped_ = 0;
  return counts;
}

std::string Balance::summary() const {
  if (counts_ == first_) return "no logical shards were moved: the ranks are equally fast";
  return fmt::format(
      "logical shards of the ranks: {} in place of {}; the slowest works {} in a step in place of {}, {:.2f} times as "
      "fast",
      counts_text(counts_), counts_text(first_), format_duration(seconds_after_), format_duration(seconds_before_),
      seconds_before_ / std::max(seconds_after_, 1e-9));
}

}  // namespace ddp
