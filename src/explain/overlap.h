// How much of the sums of a step's buckets backward hides: they run one after the other, each as soon as its bucket is ready.
//
//   const std::vector<QueuedSum> sums = {{.ready = 0.3, .seconds = 3e-3}, {.ready = 1, .seconds = 1e-3}};
//   exposed_sums(sums, /*backward_ends=*/9e-3);             // 1 ms: the last begins when backward ends
//   const double delay = delay_of_sums(sums, 9e-3, 2e-3);   // by which the sums take longer if 2 ms are exposed
//   exposed_sums(sums, 36e-3, delay);                       // what a backward four times as long leaves of that
#pragma once

#include <span>

namespace ddp {

// The sum of one bucket over the ranks.
struct QueuedSum {
  double ready = 1;    // when its bucket is, as a share of the time until backward ends
  double seconds = 0;  // that it takes
};

// Seconds from the end of backward, `backward_ends` after the start of the step, to the end of the last sum. `delay` is what
// all sums together take longer, divided among them in proportion to their time; the result if there are none.
double exposed_sums(std::span<const QueuedSum> sums, double backward_ends, double delay = 0);

// The delay with which `exposed` seconds are exposed, to 1e-15 of the step; 0 if more are even without.
double delay_of_sums(std::span<const QueuedSum> sums, double backward_ends, double exposed);

}  // namespace ddp
