#include "metrics/recorder.h"

#include <algorithm>

#include "metrics/process_times.h"

namespace ddp {
namespace {

constexpr double kSecondsBetweenReads = 0.5;

LoaderCounts difference(const LoaderCounts& a, const LoaderCounts& b) {
  return {a.batches - b.batches, a.ready - b.ready, a.busy_seconds - b.busy_seconds, a.cpu_seconds - b.cpu_seconds};
}

}  // namespace

double rank_work(const PhaseTotals& phases) {
  return phases[Phase::data_wait] + phases[Phase::forward] + phases[Phase::backward] + phases[Phase::optimizer] +
         phases[Phase::other];
}

Recorder::Recorder(std::size_t buckets, double (*read_clock)()) : read_clock_(read_clock), bucket_sums_(buckets) {
  ring_.reserve(kRingSteps);
}

void Recorder::step(const StepInfo& info, std::span<const SumTimes> buckets) {
  StepSample sample;
  sample.step = info.step;
  sample.begin = info.begin;
  sample.end = read_clock_();
  sample.phases = info.phases;
  sample.phases -= at_last_step_;
  sample.ready_batches = info.loader.ready - loader_at_last_step_.ready;
  sample.bucket_count = std::min(buckets.size(), kRingBuckets);
  std::copy_n(buckets.begin(), sample.bucket_count, sample.buckets.begin());
  const auto place = static_cast<std::size_t>(seen_) % kRingSteps;
  if (ring_.size() < kRingSteps) {
    ring_.push_back(sample);
  } else {
    ring_[place] = sample;
  }
  at_last_step_ = info.phases;
  loader_at_last_step_ = info.loader;
  ++seen_;
  if (seen_ < kWarmUpSteps) return;
  if (seen_ == kWarmUpSteps) {
    before_ = info.phases;
    at_last_gather_ = info.phases;
    loader_before_ = info.loader;
    const ProcessTimes times = process_times();
    core_wait_before_ = times.core_wait;
    cpu_before_ = times.cpu;
    return;
  }
  timing_.steps += 1;
  ++steps_since_gather_;
  timing_.loader = difference(info.loader, loader_before_);
  add_buckets(info, buckets);
}

void Recorder::new_loader() {
  loader_before_ = difference(loader_before_, loader_at_last_step_);
  loader_at_last_step_ = {};
}

void Recorder::add_buckets(const StepInfo& info, std::span<const SumTimes> buckets) {
  if (buckets.size() != bucket_sums_.size() || buckets.empty()) return;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    BucketTiming& sum = bucket_sums_[i];
    const double seconds = buckets[i].done - buckets[i].begun;
    sum.ready += buckets[i].started - info.begin;
    sum.begun += buckets[i].begun - info.begin;
    sum.done += buckets[i].done - info.begin;
    sum.shortest = bucket_steps_ == 0 ? seconds : std::min(sum.shortest, seconds);
    timing_.sum_seconds += seconds;
  }
  ++bucket_steps_;
}

// Reading the kernel's counters takes up to a tenth of a millisecond.
void Recorder::read_process() {
  const double time = read_clock_();
  if (time - read_at_ < kSecondsBetweenReads) return;
  read_at_ = time;
  const ProcessTimes times = process_times();
  timing_.core_wait = times.core_wait - core_wait_before_;
  timing_.cpu_seconds = times.cpu - cpu_before_;
  timing_.memory = times.memory;
  const std::optional<GpuClockSample> clock = read_gpu_clock_ ? read_gpu_clock_() : std::nullopt;
  if (!clock) return;
  timing_.gpu_clock.samples += 1;
  timing_.gpu_clock.speed += clock->speed;
  timing_.gpu_clock.heat += clock->heat ? 1 : 0;
  timing_.gpu_clock.power += clock->power ? 1 : 0;
}

std::vector<RankTiming> Recorder::gather(Communicator& ranks, const PhaseTotals& phases) {
  if (seen_ >= kWarmUpSteps) {
    timing_.phases = phases;
    timing_.phases -= before_;
    if (steps_since_gather_ > 0) {
      PhaseTotals since = phases;
      since -= at_last_gather_;
      const double work = rank_work(since) / static_cast<double>(steps_since_gather_);
      timing_.best_work = timing_.best_work == 0 ? work : std::min(timing_.best_work, work);
    }
    at_last_gather_ = phases;
    read_process();
  }
  steps_since_gather_ = 0;
  std::vector<RankTiming> all(ranks.rank() == 0 ? static_cast<std::size_t>(ranks.size()) : 0);
  ranks.gather(std::as_bytes(std::span(&timing_, 1)), std::as_writable_bytes(std::span(all)),
               "the timing of all ranks");
  if (!all.empty()) count_slowest(all);
  return all;
}

// On rank 0. Shorter intervals, such as the last one, would show noise.
void Recorder::count_slowest(std::span<RankTiming> all) {
  if (counted_.empty()) counted_.resize(all.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) all[rank].slowest = counted_[rank].slowest;
  const double steps = all[0].steps - counted_[0].steps;
  if (steps < static_cast<double>(kStepsBetweenGathers)) return;
  const auto work = [&](std::size_t rank) { return rank_work(all[rank].phases) - rank_work(counted_[rank].phases); };
  std::size_t slowest = 0;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (work(rank) > work(slowest)) slowest = rank;
  }
  all[slowest].slowest += 1;
  counted_.assign(all.begin(), all.end());
}

std::vector<BucketTiming> Recorder::buckets() const {
  if (bucket_steps_ == 0) return {};
  std::vector<BucketTiming> means = bucket_sums_;
  for (BucketTiming& mean : means) {
    mean.ready /= static_cast<double>(bucket_steps_);
    mean.begun /= static_cast<double>(bucket_steps_);
    mean.done /= static_cast<double>(bucket_steps_);
  }
  return means;
}

std::vector<StepSample> Recorder::last_steps() const {
  std::vector<StepSample> steps = ring_;
  std::sort(steps.begin(), steps.end(), [](const StepSample& a, const StepSample& b) { return a.begin < b.begin; });
  return steps;
}

}  // namespace ddp
