#include "train/batch_stream.h"

#include <span>

#include "data/sample_key.h"

namespace ddp {

Cursor advanced(Cursor cursor, std::int64_t steps_per_epoch) {
  if (++cursor.step == steps_per_epoch) cursor = {cursor.epoch + 1, 0};
  return cursor;
}

BatchStream::BatchStream(const BatchPlan& plan, int rank, std::int64_t samples, std::uint64_t seed, Cursor begin,
                         std::int64_t steps)
    : plan_(plan), rank_(rank), seed_(seed), sampler_(samples, seed), cursor_(begin), left_(steps) {
  keys_.reserve(static_cast<std::size_t>(plan.per_rank));
}

std::optional<BatchRequest> BatchStream::next() {
  if (left_ == 0) return std::nullopt;
  --left_;
  if (cursor_.epoch != shuffled_epoch_) {
    sampler_.begin_epoch(cursor_.epoch);
    shuffled_epoch_ = cursor_.epoch;
  }
  const Range mine = plan_.rank_samples(rank_, plan_.batch_of_step(cursor_.step));
  const std::int64_t begin = cursor_.step * plan_.global_batch + mine.begin;
  const std::span<const std::uint32_t> indices =
      sampler_.order().subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(mine.size()));
  keys_.clear();
  for (const std::uint32_t index : indices) keys_.push_back(sample_key(seed_, cursor_.epoch, index));
  cursor_ = advanced(cursor_, plan_.steps_per_epoch);
  return BatchRequest{indices, keys_};
}

}  // namespace ddp
