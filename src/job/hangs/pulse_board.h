// Which ranks are alive, which make progress, and which one the others wait for; pure logic for the watchdog.
//
//   PulseBoard board(rank, size);
//   const Pulse received;    // of rank 3, by way of another one
//   const Report report;     // and what it does
//   board.note_own({.beats = heartbeats(), .waits = true, .peer = 2}, clock);   // a few times a second
//   board.merge(3, received, /*tick_age=*/0.2, /*beat_age=*/0.3, clock);        // pulses spread from rank to rank
//   board.note_report(3, report);                                  // if nothing progresses: what the ranks are doing
//   if (const auto finding = board.find_culprits({.silent = 60, .stuck = 600}, clock)) ...
//
// A rank that makes no progress because it waits for others is excused by them. The rank to blame is one without an
// excuse: a rank that sends no pulses (its process is stopped or killed, or its host cannot be reached), otherwise one
// that makes no progress without waiting for another rank.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ddp {

// The state that a rank reports about itself, and forwards about others.
struct Pulse {
  std::uint64_t ticks = 0;     // sequence number of the report; higher is newer
  std::uint64_t beats = 0;     // its heartbeats
  std::int32_t waits = 0;      // 1: its main thread waits for other ranks
  std::int32_t peer = -1;      // one that it waits for, or -1
  std::int32_t leaving = 0;    // 1: it has reached the end of the program
  std::int32_t long_work = 0;  // 1: it is within a LongActivity and does not wait for others
  std::int64_t step = 0;       // its position (base/status/position.h)
  std::int32_t phase = 0;
  std::int32_t bucket = 0;
};

// What a rank tells about itself while nothing progresses, in more words than a pulse.
struct Report {
  std::uint64_t ticks = 0;          // of its pulse at that time; higher is newer
  std::int32_t file_call = 0;       // 1: it is in a file system call
  std::int32_t stopped = 0;         // 1: its process is stopped; told by another rank of its host
  std::array<char, 112> doing{};    // its innermost activity
  std::array<char, 128> threads{};  // thread_states()
};

// How long the ranks may be without a sign of progress, in seconds.
struct Patience {
  double silent = 0;  // without pulses
  double stuck = 0;   // without progress
};

struct Finding {
  enum class Kind {
    silent,  // these ranks send no pulses
    stuck,   // they make no progress, without waiting for others
    cycle,   // all ranks wait for one another: the messages between some of them are lost
  };
  Kind kind = Kind::stuck;
  std::vector<int> ranks;  // to blame; of a cycle: all
  int reporter = 0;        // the rank that prints the message: the lowest that is heard
};

class PulseBoard {
 public:
  PulseBoard(int rank, int size);

  // `clock`: seconds in which this process was awake.
  void note_own(const Pulse& pulse, double clock);
  // The pulse of a rank, if it is newer than what is known; with the seconds since it was sent, and since its last progress.
  void merge(int rank, const Pulse& pulse, double tick_age, double beat_age, double clock);
  std::span<const Pulse> table() const { return table_; }
  void note_report(int rank, const Report& report);
  std::span<const Report> reports() const { return reports_; }
  bool all_leave() const;

  // If there are too many ranks to hear all (job/hangs/pulse_spread.h): those that are heard, in order of sources.
  void hear_only(std::span<const int> ranks);
  // The others are taken as heard; what else was known of them is out of date.
  void presume_heard(double clock);
  void forget_others();
  // Some other rank has made progress, or was at work that is known to take long, at this time.
  void note_progress(double clock);
  void note_long_work(double clock) { long_work_at_ = clock; }

  // The ranks to blame if some rank was silent, or no rank made progress, for so long.
  std::optional<Finding> find_culprits(const Patience& patience, double clock) const;
  // Whether a rank that was heard within `seconds` does work that is known to take long.
  bool long_work(double seconds, double clock) const;
  // Since the last progress of any rank.
  double seconds_still(double clock) const;
  // Since the last progress and the last pulse of a rank.
  double seconds_stuck(int rank, double clock) const { return clock - seen_[static_cast<std::size_t>(rank)].beat; }
  double seconds_silent(int rank, double clock) const { return clock - seen_[static_cast<std::size_t>(rank)].tick; }
  // When any other rank last made progress, by the clock of merge().
  double progress_elsewhere() const { return progress_elsewhere_; }

 private:
  struct Seen {
    double tick = 0;  // when the last new pulse came
    double beat = 0;  // when the last progress was seen
  };

  std::size_t rank_;
  std::vector<Pulse> table_;
  std::vector<Report> reports_;
  std::vector<Seen> seen_;
  std::vector<bool> heard_;  // empty: all
  bool begun_ = false;
  double progress_at_ = -1e18;  // of any rank, heard or not
  double long_work_at_ = -1e18;
  double progress_elsewhere_ = -1e18;
};

}  // namespace ddp
