// What a rank records of its steps: sums since the start, and the last steps one by one in a ring in memory.
//
//   Recorder recorder(/*buckets=*/3);
//   recorder.step({.step = 7, .begin = began, .phases = phase_clock.totals(), .loader = {}}, sum_times);   // each step
//   std::vector<RankTiming> ranks = recorder.gather(communicator, phase_clock.totals());                    // collective
//   for (const StepSample& sample : recorder.last_steps()) ...
//
// Recording a step costs well below a microsecond and allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/sums/device_communicator.h"
#include "metrics/phases.h"

namespace ddp {

// The first steps of a process allocate, load libraries and touch their memory for the first time. They do not count.
inline constexpr std::int64_t kWarmUpSteps = 2;
// Steps in last_steps().
inline constexpr std::size_t kRingSteps = 512;
// Buckets of a step whose times the ring keeps.
inline constexpr std::size_t kRingBuckets = 8;

// The loader's counters, data/pipeline/loader.h.
struct LoaderCounts {
  double batches = 0;
  double ready = 0;
  double busy_seconds = 0;
  double cpu_seconds = 0;
  friend bool operator==(const LoaderCounts&, const LoaderCounts&) = default;
};

// When a loader's worker read a batch, data/pipeline/loader.h.
struct LoadSpan {
  int worker = 0;
  std::int64_t step = 0;  // that trains on the batch
  double begin = 0;       // base/clock.h
  double end = 0;
};

// What is known of a step when it has ended.
struct StepInfo {
  std::int64_t step = 0;
  double begin = 0;    // of its wait for data; base/clock.h
  PhaseTotals phases;  // of the clock since the start
  LoaderCounts loader;
};

// A step in the ring.
struct StepSample {
  std::int64_t step = 0;
  double begin = 0;
  double end = 0;
  PhaseTotals phases;  // of this step
  double ready_batches = 0;
  std::array<SumTimes, kRingBuckets> buckets{};
  std::size_t bucket_count = 0;  // of those in `buckets`
};

// The clock of a rank's GPU at one time.
struct GpuClockSample {
  double speed = 0;    // as a share of its highest
  bool heat = false;   // reduced because of the temperature
  bool power = false;  // reduced because of the power limit or the power supply
};

// Sums over samples; 0 without a GPU.
struct GpuClockCounts {
  double samples = 0;
  double speed = 0;
  double heat = 0;
  double power = 0;
  friend bool operator==(const GpuClockCounts&, const GpuClockCounts&) = default;
};

// What a rank has recorded, without the first steps; plain data, which is sent as bytes.
struct RankTiming {
  double steps = 0;
  PhaseTotals phases;
  double slowest = 0;    // in how many intervals between gathers its own work took longer than that of all other ranks
  double best_work = 0;  // the smallest mean of a step's own work (see rank_work()) between two gathers; 0: none yet
  double core_wait = 0;  // seconds that all threads of the process waited for a core
  double cpu_seconds = 0;  // of all threads
  LoaderCounts loader;
  double sum_seconds = 0;  // in which sums of buckets were computed, hidden or not
  double memory = 0;       // the most resident host memory, in bytes
  GpuClockCounts gpu_clock;
  friend bool operator==(const RankTiming&, const RankTiming&) = default;
};

// The phases in which a rank computes or reads by itself: data wait, forward, backward, optimizer, other.
double rank_work(const PhaseTotals& phases);

// The mean times of a bucket in seconds after the start of the step's wait for data, and the shortest sum.
struct BucketTiming {
  double ready = 0;
  double begun = 0;
  double done = 0;
  double shortest = 0;  // from begun to done, over all steps
};

class Recorder {
 public:
  // `read_clock` is for tests.
  explicit Recorder(std::size_t buckets, double (*read_clock)() = now);

  // `read` is called at most twice a second.
  void set_gpu_clock(std::function<std::optional<GpuClockSample>()> read) { read_gpu_clock_ = std::move(read); }

  void step(const StepInfo& info, std::span<const SumTimes> buckets);
  // The counters of the loader begin at 0 again.
  void new_loader();
  // Collective: the timing of all ranks until now, on rank 0; empty on the others. `phases` are the clock's totals.
  std::vector<RankTiming> gather(Communicator& ranks, const PhaseTotals& phases);
  // Whether a gather is worth its messages: at least `kStepsBetweenGathers` since the last. The same on all ranks.
  bool gather_due() const { return steps_since_gather_ >= kStepsBetweenGathers; }
  std::int64_t steps_since_gather() const { return steps_since_gather_; }

  // Times of this rank; those of the other ranks differ.
  std::vector<BucketTiming> buckets() const;
  // The last steps, oldest first.
  std::vector<StepSample> last_steps() const;

 private:
  static constexpr std::int64_t kStepsBetweenGathers = 20;

  void count_slowest(std::span<RankTiming> all);
  void read_process();
  void add_buckets(const StepInfo& info, std::span<const SumTimes> buckets);

  double (*read_clock_)();
  std::function<std::optional<GpuClockSample>()> read_gpu_clock_;
  RankTiming timing_;
  PhaseTotals before_;  // the clock's totals that do not count
  PhaseTotals at_last_step_;
  LoaderCounts loader_before_;
  LoaderCounts loader_at_last_step_;
  double core_wait_before_ = 0;
  double cpu_before_ = 0;
  double read_at_ = -1e9;  // when the kernel's counters of this process were last read
  std::int64_t seen_ = 0;
  std::int64_t steps_since_gather_ = 0;
  PhaseTotals at_last_gather_;
  std::vector<RankTiming> counted_;  // of all ranks, when an interval was last counted; `slowest` counts on
  std::vector<BucketTiming> bucket_sums_;
  std::int64_t bucket_steps_ = 0;
  std::vector<StepSample> ring_;
};

}  // namespace ddp
