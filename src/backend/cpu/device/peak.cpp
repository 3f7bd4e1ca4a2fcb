// What the cores of this process can do at most.
#include <omp.h>

#include <algorithm>
#include <cstring>

#include "backend/backend.h"
#include "backend/cpu/device/peak_kernels.h"
#include "backend/cpu/isa/instruction_set.h"
#include "backend/memory.h"
#include "base/clock.h"
#include "base/status/heartbeat.h"

LANES_TABLE(PeakKernels, peak_kernels)

namespace ddp {
namespace {

constexpr int kPeakTrials = 5;
constexpr std::int64_t kPeakRounds = 1'000'000;
// Far larger than caches.
constexpr std::int64_t kCopiedBytes = std::int64_t{96} << 20U;
// Keeps values in the range of normal numbers: x * f + f converges to 1.
constexpr float kFactor = 0.5F;

// The fewest seconds of a few runs.
template <class Work>
double least_seconds(Work work) {
  double least = 0;
  for (int trial = 0; trial < kPeakTrials; ++trial) {
    heartbeat();
    const double begin = now();
    work();
    const double seconds = now() - begin;
    least = trial == 0 ? seconds : std::min(least, seconds);
  }
  return least;
}

}  // namespace

DevicePeak measure_cpu_peak() {
  const lanes::PeakKernels& kernels = lanes::peak_kernels();
  const int threads = omp_get_max_threads();
  float sum = 0;
  const double computing = least_seconds([&] {
#pragma omp parallel for schedule(static) num_threads(threads) reduction(+ : sum)
    for (int thread = 0; thread < threads; ++thread) sum += kernels.multiply_adds(kPeakRounds, kFactor);
  });
  const Memory memory = allocate_on_host(2 * static_cast<std::size_t>(kCopiedBytes), "the measured copies");
  const std::int64_t part = kCopiedBytes / threads;
  const double copying = least_seconds([&] {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int thread = 0; thread < threads; ++thread) {
      std::memcpy(memory.data() + thread * part, memory.data() + kCopiedBytes + thread * part,
                  static_cast<std::size_t>(part));
    }
  });
  const double multiply_adds = static_cast<double>(kPeakRounds) * kernels.round_multiply_adds * threads;
  return {.flops = sum > 0 ? 2 * multiply_adds / computing : 0,
          .bytes_per_second = 2 * static_cast<double>(part * threads) / copying};
}

}  // namespace ddp
