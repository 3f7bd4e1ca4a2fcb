// What the ranks tell one another of their pulses (job/hangs/pulse_board.h), so that each sends little however many there are; pure
// logic for the exchange of pulses.
//
//   PulseSpread spread(board, rank, size);
//   board.note_own(pulse, clock);                                   // a few times a second; then
//   spread.note_own(board, /*leaving=*/false, clock);
//   for (std::size_t i = 0; i < spread.targets().size(); ++i) send(spread.message(board, i, clock), spread.targets()[i]);
//   spread.take(board, /*source=*/0, received, clock);              // from spread.sources()[0]
//
// Up to 16 ranks tell all others all that they know. Among more, each sends to those 1, 2, 4, ... ranks behind it its own pulse
// and a summary: how long ago any rank made progress. A rank that misses the pulse of one that sends to it, or sees no
// progress of any rank for a while, raises an alarm, which spreads with the summaries; then, until all is well again, the
// ranks send what is new in their tables as well. Without alarm a rank takes those that it does not hear as heard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "job/hangs/pulse_board.h"

namespace ddp {

class PulseSpread {
 public:
  PulseSpread(PulseBoard& board, int rank, int size);

  const std::vector<int>& targets() const { return targets_; }
  const std::vector<int>& sources() const { return sources_; }

  // After PulseBoard::note_own().
  void note_own(PulseBoard& board, bool leaving, double clock);
  // To a target, by its index. Valid until the next call for it.
  std::span<const std::byte> message(const PulseBoard& board, std::size_t target, double clock);
  // From a source, by its index.
  void take(PulseBoard& board, std::size_t source, std::span<const std::byte> message, double clock);

  // Whether all ranks are leaving; the messages from then on say that they are the last ones.
  bool all_leave(const PulseBoard& board) const;
  static bool is_last(std::span<const std::byte> message);
  // Whether tables are sent.
  bool tells_all(double clock) const;
  // Whether no rank has made progress for a while, so that reports are sent.
  static bool reports(const PulseBoard& board, double clock);

 private:
  // What a target has been told.
  struct Told {
    std::vector<std::uint64_t> ticks;
    std::vector<std::uint64_t> reports;  // their hashes
    double at = -1e18;                   // the last table
    std::vector<std::byte> message;
  };
  void count_left();
  void end_alarm(PulseBoard& board);
  std::vector<std::size_t> news(const PulseBoard& board, Told& told) const;
  std::vector<std::size_t> new_reports(const PulseBoard& board, Told& told) const;

  int rank_;
  bool few_;
  std::vector<int> targets_;
  std::vector<int> sources_;
  std::vector<Told> told_;
  double alarm_at_ = -1e18;
  bool alarmed_ = false;
  double long_work_at_ = -1e18;
  // 2^left_ ranks up to this one are leaving, -1: this one is not; and what the sources have said of themselves.
  int left_ = -1;
  std::vector<int> sources_left_;
};

}  // namespace ddp
