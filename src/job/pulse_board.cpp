#include "job/pulse_board.h"

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
  note(rank_, pulse, clock);
}

void PulseBoard::merge(std::span<const Pulse> table, double clock) {
  DDP_ASSERT(table.size() == table_.size());
  for (std::size_t rank = 0; rank < table.size(); ++rank) {
    if (rank != rank_ && table[rank].ticks > table_[rank].ticks) note(rank, table[rank], clock);
  }
}

void PulseBoard::note(std::size_t rank, const Pulse& pulse, double clock) {
  seen_[rank].tick = clock;
  if (pulse.beats != table_[rank].beats) {
    seen_[rank].beat = clock;
    if (rank != rank_) progress_elsewhere_ = clock;
  }
  table_[rank] = pulse;
}

void PulseBoard::note_report(int rank, const Report& report) {
  Report& known = reports_[static_cast<std::size_t>(rank)];
  if (report.ticks >= known.ticks) known = report;
}

void PulseBoard::merge_reports(std::span<const Report> reports) {
  DDP_ASSERT(reports.size() == reports_.size());
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    if (rank != rank_) note_report(static_cast<int>(rank), reports[rank]);
  }
}

double PulseBoard::seconds_still(double clock) const {
  double latest = seen_.front().beat;
  for (const Seen& seen : seen_) latest = std::max(latest, seen.beat);
  return clock - latest;
}

bool PulseBoard::long_work(double seconds, double clock) const {
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
  if (std::any_of(seen_.begin(), seen_.end(), moves)) return std::nullopt;
  if (blame(Finding::Kind::stuck, [&](std::size_t rank) { return table_[rank].waits == 0; })) return finding;
  blame(Finding::Kind::cycle, [](std::size_t) { return true; });
  return finding;
}

}  // namespace ddp
