// The clocks of the ranks relative to that of rank 0, so that times of different hosts can be shown together.
//
//   const ClockSample before = measure_clock(communicator);   // collective
//   work();
//   const AlignedClock aligned{before, measure_clock(communicator)};
//   aligned.on_rank0(now());   // seconds on rank 0's clock
//   aligned.error();           // at most this wrong, if messages take the same time in both directions
//
// As in NTP: of several exchanges with rank 0 the one with the shortest round trip gives the offset, half of the round trip
// is its error. Two such measurements also give the drift.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/clock.h"
#include "comm/communicator.h"

namespace ddp {

struct ClockSample {
  double at = 0;      // on the own clock
  double offset = 0;  // rank 0's clock minus the own
  double error = 0;   // of the offset
};

// `read_clock` is for tests.
ClockSample measure_clock(Communicator& ranks, const std::function<double()>& read_clock = now);

struct AlignedClock {
  ClockSample begin;
  ClockSample end;

  // Seconds that rank 0's clock gains in a second. 0 if the difference between the measurements is within their errors:
  // after a short run a drift computed from it would be wrong by more than any clock drifts.
  double drift() const {
    const double gained = end.offset - begin.offset;
    const bool known = end.at > begin.at && std::abs(gained) > begin.error + end.error;
    return known ? gained / (end.at - begin.at) : 0;
  }
  double on_rank0(double time) const { return time + begin.offset + drift() * (time - begin.at); }
  double error() const { return std::max(begin.error, end.error); }
};

}  // namespace ddp
