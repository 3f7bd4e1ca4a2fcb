// What the host makes of the message of a step, and of those of all ranks.
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "train/step/step.h"

namespace ddp {

StepResult TrainStep::result_of(const InFlight& step) const {
  const auto* values = step.message.at<double>(0);
  StepResult result;
  for (int shard = 0; shard < plan_.shards; ++shard) result.loss += values[Slot::losses + shard];
  result.loss /= static_cast<double>(step.input.samples);
  result.correct = static_cast<std::int64_t>(values[Slot::correct]);
  result.finite = values[Slot::broken] == 0;
  result.request = {values[Slot::stop] > 0, values[Slot::checkpoint] > 0};
  if (!fingerprints_) {
    result.grad_norm = std::nan("");
    return result;
  }
  const auto* squares = step.message.at<double>(squares_at());
  result.grad_norm =
      std::sqrt(std::accumulate(squares, squares + squares_count(), 0.0)) / step.input.control.loss_scale;
  const auto hash = [&](std::size_t which, std::size_t count) {
    return count == 0 ? 0 : XXH3_64bits(step.message.data() + sample_at(which), count * sizeof(float));
  };
  result.hashes = {static_cast<std::uint64_t>(values[Slot::sample_hash]),
                   static_cast<std::uint64_t>(values[Slot::pixel_hash]), hash(1, hashed_statistics_),
                   hash(0, static_cast<std::size_t>(hashed_.size()))};
  return result;
}

// As many on all ranks.
std::size_t TrainStep::kept_of_step() const {
  std::int64_t most = 0;
  for (int rank = 0; rank < plan_.ranks; ++rank) most = std::max(most, plan_.shards_of(rank).size());
  return Slot::losses - Slot::correct + static_cast<std::size_t>(most);
}

void TrainStep::keep_result(const InFlight& step, const StepResult& result) {
  const auto* const values = step.message.at<double>(0);
  const Range shards = plan_.shards_of(rank_);
  const std::size_t begin = kept_.size();
  kept_.insert(kept_.end(), values + Slot::correct, values + Slot::losses);
  kept_.insert(kept_.end(), values + Slot::losses + shards.begin, values + Slot::losses + shards.end);
  kept_.resize(begin + kept_of_step());
  kept_own_.push_back(result);
  kept_samples_.push_back(step.input.samples);
}

void TrainStep::forget_last() {
  if (!keeps_results_) return;
  kept_own_.pop_back();
  kept_samples_.pop_back();
  kept_.resize(kept_.size() - kept_of_step());
}

// The stages of a pipeline have the shards of their replica, whose losses are zero on all but one of them.
std::vector<StepResult> TrainStep::collect(Communicator& ranks) {
  const std::size_t steps = kept_own_.size();
  const auto size = static_cast<std::size_t>(ranks.size());
  std::vector<double> all(ranks.rank() == 0 ? kept_.size() * size : 0);
  ranks.gather(std::as_bytes(std::span(kept_)), std::as_writable_bytes(std::span(all)), "the results of steps");
  std::vector<StepResult> results = std::move(kept_own_);
  const std::vector<std::int64_t> samples = std::move(kept_samples_);
  kept_own_.clear();
  kept_samples_.clear();
  kept_.clear();
  if (ranks.rank() != 0) return {};
  const std::size_t each = kept_of_step();
  const std::size_t of_replica = size / static_cast<std::size_t>(plan_.ranks);
  std::vector<double> of_shards(static_cast<std::size_t>(plan_.shards));
  for (std::size_t step = 0; step < steps; ++step) {
    std::array<double, Slot::losses - Slot::correct> counts{};
    std::fill(of_shards.begin(), of_shards.end(), 0.0);
    for (std::size_t rank = 0; rank < size; ++rank) {
      const double* value = &all[(rank * steps + step) * each];
      for (double& count : counts) count += *value++;
      const Range shards = plan_.shards_of(static_cast<int>(rank / of_replica));
      for (std::int64_t shard = shards.begin; shard < shards.end; ++shard)
        of_shards[static_cast<std::size_t>(shard)] += *value++;
    }
    StepResult& result = results[step];
    result.loss = std::accumulate(of_shards.begin(), of_shards.end(), 0.0) / static_cast<double>(samples[step]);
    result.correct = static_cast<std::int64_t>(counts[0]);
    if (!fingerprints_) continue;
    result.hashes.samples = static_cast<std::uint64_t>(counts[Slot::sample_hash - Slot::correct]);
    result.hashes.pixels = static_cast<std::uint64_t>(counts[Slot::pixel_hash - Slot::correct]);
  }
  return results;
}

}  // namespace ddp
