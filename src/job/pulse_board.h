// Which ranks are alive, which make progress, and which one the others wait for; pure logic for the watchdog.
//
//   PulseBoard board(rank, size);
//   const std::vector<Pulse> received;   // the table of another rank
//   board.note_own({.beats = heartbeats(), .waits = true, .peer = 2}, clock);   // a few times a second
//   board.merge(received, clock);                                  // pulses spread from rank to rank
//   if (const auto finding = board.find_culprits(600, clock)) ...               // no progress on any rank for 600 s
//
// A rank that makes no progress because it waits for others is excused by them. The rank to blame is one without an
// excuse: a rank that sends no pulses (its process is stopped or killed, or its host cannot be reached), otherwise one
// that makes no progress without waiting for another rank.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ddp {

// The state that a rank reports about itself, and forwards about others.
struct Pulse {
  std::uint64_t ticks = 0;   // sequence number of the report; higher is newer
  std::uint64_t beats = 0;   // its heartbeats
  std::int32_t waits = 0;    // 1: its main thread waits for other ranks
  std::int32_t peer = -1;    // one that it waits for, or -1
  std::int32_t leaving = 0;  // 1: it has reached the end of the program
  std::int32_t unused = 0;
};

struct Finding {
  enum class Kind {
    silent,  // these ranks send no pulses
    stuck,   // they make no progress, without waiting for others
    cycle,   // all ranks wait for one another: the messages between some of them are lost
  };
  Kind kind = Kind::stuck;
  std::vector<int> ranks;  // to blame; of a cycle: all
  int reporter = 0;        // the rank that prints the message
};

class PulseBoard {
 public:
  PulseBoard(int rank, int size);

  // `clock`: seconds in which this process was awake.
  void note_own(const Pulse& pulse, double clock);
  void merge(std::span<const Pulse> table, double clock);
  std::span<const Pulse> table() const { return table_; }
  bool all_leave() const;

  // The ranks to blame if some rank was silent, or no rank made progress, for `seconds`.
  std::optional<Finding> find_culprits(double seconds, double clock) const;
  // When any other rank last made progress, by the clock of merge().
  double progress_elsewhere() const { return progress_elsewhere_; }

 private:
  struct Seen {
    double tick = 0;  // when the last new pulse came
    double beat = 0;  // when the last progress was seen
  };
  void note(std::size_t rank, const Pulse& pulse, double clock);

  std::size_t rank_;
  std::vector<Pulse> table_;
  std::vector<Seen> seen_;
  bool begun_ = false;
  double progress_elsewhere_ = -1e18;
};

}  // namespace ddp
