#include "metrics/clock_sync.h"

#include <array>
#include <limits>
#include <span>

namespace ddp {
namespace {

constexpr int kExchanges = 16;

// On rank 0: the offset of another rank's clock and its error.
std::array<double, 2> offset_of(Communicator& ranks, int peer, const std::function<double()>& read_clock) {
  std::array<double, 2> best = {0, std::numeric_limits<double>::infinity()};
  for (int i = 0; i < kExchanges; ++i) {
    double theirs = 0;
    const double sent = read_clock();
    ranks.send(std::as_bytes(std::span(&sent, 1)), peer);
    ranks.receive(std::as_writable_bytes(std::span(&theirs, 1)), peer);
    const double half = (read_clock() - sent) / 2;
    if (half < best[1]) best = {sent + half - theirs, half};
  }
  return best;
}

}  // namespace

ClockSample measure_clock(Communicator& ranks, const std::function<double()>& read_clock) {
  ClockSample sample;
  ranks.barrier();
  sample.at = read_clock();
  std::array<double, 2> result = {0, 0};
  for (int peer = 1; peer < ranks.size(); ++peer) {
    if (ranks.rank() == 0) {
      const std::array<double, 2> found = offset_of(ranks, peer, read_clock);
      ranks.send(std::as_bytes(std::span(found)), peer);
    } else if (ranks.rank() == peer) {
      for (int i = 0; i < kExchanges; ++i) {
        double sent = 0;
        ranks.receive(std::as_writable_bytes(std::span(&sent, 1)), 0);
        const double mine = read_clock();
        ranks.send(std::as_bytes(std::span(&mine, 1)), 0);
      }
      ranks.receive(std::as_writable_bytes(std::span(result)), 0);
    }
  }
  sample.offset = result[0];
  sample.error = result[1];
  return sample;
}

}  // namespace ddp
