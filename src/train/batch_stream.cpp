#include "train/batch_stream.h"

#include <span>

#include "data/pipeline/sample_key.h"

namespace ddp {

Cursor advanced(Cursor cursor, std::int64_t steps_per_epoch) {
  if (++cursor.step == steps_per_epoch) cursor = {cursor.epoch + 1, 0};
  return cursor;
}

BatchStream::BatchStream(const BatchPlan& plan, int rank, std::int64_t samples, std::uint64_t seed, Cursor begin,
                         std::int64_t steps, bool alternating)
    : plan_(plan),
      rank_(rank),
      seed_(seed),
      sampler_(samples, seed),
      cursor_(begin),
      left_(steps),
      alternating_(alternating) {
  keys_.reserve(static_cast<std::size_t>(plan.per_rank));
  partners_.reserve(static_cast<std::size_t>(plan.per_rank));
}

std::optional<BatchRequest> BatchStream::next() {
  if (left_ == 0) return std::nullopt;
  --left_;
  if (cursor_.epoch != shuffled_epoch_) {
    sampler_.begin_epoch(cursor_.epoch);
    shuffled_epoch_ = cursor_.epoch;
  }
  const std::int64_t batch = plan_.batch_of_step(cursor_.step);
  const Range mine = plan_.rank_samples(rank_, batch);
  const std::int64_t begin = cursor_.step * plan_.global_batch + mine.begin;
  const std::span<const std::uint32_t> indices =
      sampler_.order().subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(mine.size()));
  keys_.clear();
  const auto key_of = alternating_ ? alternating_key : sample_key;
  for (const std::uint32_t index : indices) keys_.push_back(key_of(seed_, cursor_.epoch, index));
  partners_.clear();
  const Range shards = plan_.shards_of(rank_);
  for (std::int64_t shard = shards.begin; shard < shards.end; ++shard) {
    const Range samples = plan_.shard_samples(shard, batch);
    for (std::int64_t i = 0; i < samples.size(); ++i) {
      const std::int64_t neighbour = i % 2 == 0 ? i + 1 : i - 1;
      const std::int64_t partner =
          neighbour < samples.size() ? neighbour : i;  // the last of an odd number is not mixed
      partners_.push_back(static_cast<std::uint32_t>(samples.begin - mine.begin + partner));
    }
  }
  const std::uint64_t key = batch_key(seed_, cursor_.epoch, cursor_.step);
  cursor_ = advanced(cursor_, plan_.steps_per_epoch);
  return BatchRequest{indices, keys_, partners_, key};
}

}  // namespace ddp
