#include "job/hangs/pulse_board.h"

#include <algorithm>

#include "base/error.h"

namespace ddp {

PulseBoard::PulseBoard(int rank, int size)
    : rank_(static_cast<std::size_t>(rank)),
      table_(static_cast<std::size_t>(size)),
      reports_(static_cast<std::size_t>(size)),
      seen_(static_cast<std::size_t>(size)) {
  DDP_ASSERT(rank >= 0 && rank < size);
}

void PulseBoard::note_own(const Pulse& pulse, double clock) {
  if (!begun_) {
    // Silence counts from the start of listening.
    std::fill(seen_.begin(), seen_.end(), Seen{clock, clock});
    begun_ = true;
  }
  seen_[rank_].tick = clock;
  if (pulse.beats != table_[rank_].beats) seen_[rank_].beat = clock;
  table_[rank_] = pulse;
}

void PulseBoard::merge(int rank, const Pulse& pulse, double tick_age, double beat_age, double clock) {
  const auto place = static_cast<std::size_t>(rank);
  DDP_ASSERT(place < table_.size());
  if (place == rank_ || pulse.ticks <= table_[place].ticks) return;
  seen_[place].tick = clock - tick_age;
  if (pulse.beats != table_[place].beats && clock - beat_age > seen_[place].beat) {
    seen_[place].beat = clock - beat_age;
    progress_elsewhere_ = std::max(progress_elsewhere_, seen_[place].beat);
  }
  table_[place] = pulse;
}

void PulseBoard::hear_only(std::span<const int> ranks) {
  heard_.assign(table_.size(), false);
  heard_[rank_] = true;
  for (const int rank : ranks) heard_[static_cast<std::size_t>(rank)] = true;
}

void PulseBoard::presume_heard(double clock) {
  for (std::size_t rank = 0; rank < heard_.size(); ++rank) {
    if (!heard_[rank]) seen_[rank].tick = clock;
  }
}

void PulseBoard::forget_others() {
  for (std::size_t rank = 0; rank < heard_.size(); ++rank) {
    if (heard_[rank]) continue;
    table_[rank] = {};
    reports_[rank] = {};
  }
}

void PulseBoard::note_progress(double clock) {
  progress_at_ = std::max(progress_at_, clock);
  progress_elsewhere_ = std::max(progress_elsewhere_, clock);
}

void PulseBoard::note_report(int rank, const Report& report) {
  Report& known = reports_[static_cast<std::size_t>(rank)];
  if (report.ticks >= known.ticks) known = report;
}

double PulseBoard::seconds_still(double clock) const {
  double latest = std::max(progress_at_, seen_.front().beat);
  for (const Seen& seen : seen_) latest = std::max(latest, seen.beat);
  return clock - latest;
}

bool PulseBoard::long_work(double seconds, double clock) const {
  if (clock - long_work_at_ < seconds) return true;
  for (std::size_t rank = 0; rank < table_.size(); ++rank) {
    if (table_[rank].long_work != 0 && clock - seen_[rank].tick < seconds) return true;
  }
  return false;
}

bool PulseBoard::all_leave() const {
  return std::all_of(table_.begin(), table_.end(), [](const Pulse& pulse) { return pulse.leaving != 0; });
}

std::optional<Finding> PulseBoard::find_culprits(const Patience& patience, double clock) const {
  if (!begun_) return std::nullopt;
  Finding finding;
  const auto blame = [&](Finding::Kind kind, const auto& guilty) {
    finding.kind = kind;
    finding.ranks.clear();
    for (std::size_t rank = 0; rank < table_.size(); ++rank) {
      if (guilty(rank)) finding.ranks.push_back(static_cast<int>(rank));
    }
    return !finding.ranks.empty();
  };
  const auto silent = [&](std::size_t rank) { return rank != rank_ && clock - seen_[rank].tick >= patience.silent; };
  if (blame(Finding::Kind::silent, silent)) {
    std::size_t first = 0;
    while (silent(first)) ++first;
    finding.reporter = static_cast<int>(first);
    return finding;
  }
  const auto moves = [&](const Seen& seen) { return clock - seen.beat < patience.stuck; };
  if (clock - progress_at_ < patience.stuck || std::any_of(seen_.begin(), seen_.end(), moves)) return std::nullopt;
  // What the ranks wait for is on its way.
  const auto unknown = [](const Pulse& pulse) { return pulse.ticks == 0; };
  if (!heard_.empty() && std::any_of(table_.begin(), table_.end(), unknown)) return std::nullopt;
  if (blame(Finding::Kind::stuck, [&](std::size_t rank) { return table_[rank].waits == 0; })) return finding;
  blame(Finding::Kind::cycle, [](std::size_t) { return true; });
  return finding;
}

}  // namespace ddp
