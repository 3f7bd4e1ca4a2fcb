#include "train/step/batch_stream.h"

#include <span>

#include "data/pipeline/sample_key.h"

namespace ddp {

Cursor advanced(Cursor cursor, std::int64_t steps_per_epoch) {
  if (++cursor.step == steps_per_epoch) cursor = {cursor.epoch + 1, 0};
  return cursor;
}

BatchStream::BatchStream(const BatchPlan& plan, int rank, std::int64_t samples, const StreamConfig& config,
                         Cursor begin, std::int64_t steps)
    : plan_(plan), rank_(rank), config_(config), sampler_(samples, config.seed), cursor_(begin), left_(steps) {
  const auto most = static_cast<std::size_t>(plan.per_rank * config.at_a_time);
  indices_.reserve(most);
  keys_.reserve(most);
  partners_.reserve(most);
}

std::optional<BatchRequest> BatchStream::next() {
  if (left_ == 0) return std::nullopt;
  indices_.clear();
  keys_.clear();
  partners_.clear();
  const std::uint64_t key = batch_key(config_.seed, cursor_.epoch, cursor_.step);
  for (std::int64_t steps = 0; steps < config_.at_a_time && left_ > 0; ++steps) {
    if (steps > 0 && cursor_.step == 0) break;
    add_step();
  }
  return BatchRequest{indices_, keys_, partners_, key};
}

void BatchStream::add_step() {
  --left_;
  if (cursor_.epoch != shuffled_epoch_) {
    sampler_.begin_epoch(cursor_.epoch);
    shuffled_epoch_ = cursor_.epoch;
  }
  const std::int64_t batch = plan_.batch_of_step(cursor_.step);
  const Range mine = plan_.rank_samples(rank_, batch);
  const std::int64_t different = (batch + config_.copies - 1) / config_.copies;
  const std::int64_t begin = cursor_.step * (plan_.global_batch / config_.copies);
  const auto first = static_cast<std::int64_t>(indices_.size());
  const auto key_of = config_.alternating ? alternating_key : sample_key;
  for (std::int64_t i = mine.begin; i < mine.end; ++i) {
    const std::uint32_t index = sampler_.order()[static_cast<std::size_t>(begin + i % different)];
    indices_.push_back(index);
    keys_.push_back(key_of(copy_seed(config_.seed, i / different), cursor_.epoch, index));
  }
  const Range shards = plan_.shards_of(rank_);
  for (std::int64_t shard = shards.begin; shard < shards.end; ++shard) {
    const Range samples = plan_.shard_samples(shard, batch);
    for (std::int64_t i = 0; i < samples.size(); ++i) {
      const std::int64_t neighbour = i % 2 == 0 ? i + 1 : i - 1;
      const std::int64_t partner =
          neighbour < samples.size() ? neighbour : i;  // the last of an odd number is not mixed
      partners_.push_back(static_cast<std::uint32_t>(first + samples.begin - mine.begin + partner));
    }
  }
  cursor_ = advanced(cursor_, plan_.steps_per_epoch);
}

}  // namespace ddp
