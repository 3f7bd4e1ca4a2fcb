// The size of gradient buckets that hides their sums best on the link between the ranks.
//
//   const LinkSpeed link = measure_link(ranks);                        // collective; some milliseconds
//   const std::size_t bytes = best_bucket_bytes(link, 45 << 20);       // for 45 MiB of gradients, the same on all ranks
//
// Backward hides every sum but that of the bucket that becomes ready last. With buckets of b bytes this one takes b / B, and
// each of the G / b buckets costs a latency L, so that b / B + L G / b is to be small: b = sqrt(G L B), as for the
// segments of a pipelined broadcast (Chan et al.: "Collective communication: theory, practice, and experience", Concurrency
// Computat. 19, 2007, section 7).
#pragma once

#include <cstddef>

#include "comm/communicator.h"

namespace ddp {

struct LinkSpeed {
  double latency = 0;    // seconds of a sum of a few bytes
  double bandwidth = 0;  // bytes of a large sum per second
};

// Collective, with the same result on all ranks: that of the slowest. Needs more than one rank.
LinkSpeed measure_link(Communicator& ranks);

// A power of two, at most 25 MiB. At least 1 MiB, or on a slow link what it moves within a quarter of a millisecond: the
// gradients of a small network take longer than its backward pass there if the first of them wait for the last.
std::size_t best_bucket_bytes(const LinkSpeed& link, std::size_t gradient_bytes);

}  // namespace ddp
