// Spreads the pulses of all ranks (job/hangs/pulse_board.h) a few times a second, independently of their other work.
//
//   MpiSession session;
//   PulseExchange pulses(session);   // collective; from here on every rank knows which ones are alive
//   ...
//   pulses.close();                  // collective: all ranks have finished
//
// A separate thread of each rank sends what job/hangs/pulse_spread.h says to other ranks: to all if there are few, otherwise to those
// at a distance of 1, 2, 4, ... ranks, so that news reach every rank within a logarithmic number of rounds.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "job/hangs/hang_table.h"
#include "job/hangs/pulse_board.h"
#include "job/mpi_session.h"

namespace ddp {

class PulseExchange {
 public:
  // With a single rank there are no pulses and no thread.
  explicit PulseExchange(const MpiSession& session);
  // Without a preceding close(), only abort() of the session may follow.
  ~PulseExchange();
  PulseExchange(const PulseExchange&) = delete;
  PulseExchange& operator=(const PulseExchange&) = delete;

  // Returns when all ranks have called it, or throws Error(rank_lost). `why`: the error for which this rank leaves, if
  // another rank reports it; shown if that one does not leave.
  void close(const std::string& why = "");

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// For the watchdog: whether this process has an exchange, and its findings at the time of waiting_clock().
bool pulses_go_on();
std::optional<Finding> find_culprits(const Patience& patience);
// Whether another rank, or this one, does work that is known to take long.
bool long_work_elsewhere(double silent_seconds);
// What is known of all ranks, for the table of a hang; empty without an exchange.
std::vector<RankState> rank_states(double silent_seconds);
// "rank 2 on host a (process 4711)".
std::string name_of_rank(int rank);

}  // namespace ddp
