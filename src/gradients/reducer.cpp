#include "gradients/reducer.h"

#include <fmt/core.h>

#include <utility>

#include "base/error.h"
#include "base/status/heartbeat.h"

namespace ddp {
namespace {

// Runs `work`, prefixing the messages of its errors with the text of `where`.
template <class Where, class Work>
void naming(Where where, Work work) {
  try {
    work();
  } catch (const Error& error) {
    throw Error(error.code(), where() + error.what());
  }
}

}  // namespace

Reducer::Reducer(Communicator& ranks, Backend& backend, DeviceCommunicator& sums, ReducerConfig config)
    : backend_(backend),
      sums_(sums),
      config_(std::move(config)),
      rank_count_(ranks.size()),
      own_(plan_own_shards(ranks, config_)),
      stride_(buffer_stride(config_.elements)),
      overlaps_(rank_count_ > 1 && config_.overlap && config_.buckets.size() > 1 && sums.overlaps()) {
  check_buckets(ranks, config_);
  DDP_ASSERT(!config_.bf16 || config_.algorithm == Reduction::ring);
  const std::size_t bytes = own_.buffers * stride_ * sizeof(float);
  const bool rounds = config_.bf16 && rank_count_ > 1;
  // What is summed lies in memory for sums.
  const auto allocate = [&](std::size_t size, bool summed, const char* purpose) {
    return summed ? sums_.allocate(backend.memory(), size, purpose) : backend.memory().allocate(size, purpose);
  };
  memory_ = allocate(bytes, !rounds, "the gradients");
  if (rounds) rounded_ranges_ = updated_ranges(config_);
  if (rounds) rounded_ = allocate(config_.elements * sizeof(Bf16), true, "the gradients in bfloat16");
  partials_.resize(own_.remaining);
}

std::string Reducer::name_of(std::int64_t step) { return fmt::format("step {}", step); }

void Reducer::begin_step(std::int64_t step) {
  DDP_ASSERT(shards_done_ == 0 && !in_shard_);
  step_ = step;
}

float* Reducer::shard_gradient() {
  DDP_ASSERT(shards_done_ < local_shards());
  in_shard_ = true;
  return buffer(in_use_);
}

void Reducer::ready(std::size_t parameter_begin) {
  DDP_ASSERT(in_shard_);
  if (!overlaps_ || !last_shard()) return;
  while (launched_ < config_.buckets.size() && config_.buckets[launched_].begin >= parameter_begin) {
    reduce_next_bucket();
  }
}

void Reducer::shard_done() {
  DDP_ASSERT(in_shard_);
  if (!last_shard()) {
    in_use_ = add_own_shards(shards_done_, 0, config_.elements);
  } else if (rank_count_ == 1) {
    add_own_shards(shards_done_, 0, config_.elements);
  } else {
    ready(0);
  }
  in_shard_ = false;
  ++shards_done_;
}

void Reducer::finish() {
  DDP_ASSERT(shards_done_ == local_shards() && !in_shard_);
  if (rank_count_ > 1) {
    while (launched_ < config_.buckets.size()) reduce_next_bucket();
    // The communicator names the bucket.
    naming([&] { return step_name() + ", "; }, [&] { sums_.join(); });
    for (const Range& summed : rounded_ranges_) {
      backend_.math().copy(buffer(0) + summed.begin, rounded_.at<Bf16>(0) + summed.begin,
                           static_cast<std::size_t>(summed.size()));
    }
    add_kept();
  }
  in_use_ = 0;
  shards_done_ = 0;
  launched_ = 0;
}

void Reducer::sum(double* values, std::size_t count) {
  if (rank_count_ == 1) return;
  naming([&] { return step_name() + ", the ranks' message: "; },
         [&] {
           sums_.all_reduce(values, count);
           sums_.join();
         });
}

void Reducer::wait() {
  if (rank_count_ == 1) {
    backend_.queue().synchronize();
  } else {
    const RankWait wait_scope("the sum of gradients");
    sums_.wait(step_name());
  }
}

void Reducer::wait_for(DeviceEvent& event, std::int64_t step) {
  if (rank_count_ == 1) {
    event.wait();
  } else {
    const RankWait wait_scope("the sum of gradients");
    sums_.wait_for(event, name_of(step));
  }
}

// Performs the additions due after this shard on the elements [begin, end); returns the number of buffers in use
// afterwards.
std::size_t Reducer::add_own_shards(int shard, std::size_t begin, std::size_t end) {
  std::size_t in_use = in_use_ + 1;
  for (int merges = own_.merges[static_cast<std::size_t>(shard)]; merges > 0; --merges) {
    --in_use;
    if (end > begin) backend_.math().add(buffer(in_use - 1) + begin, buffer(in_use) + begin, end - begin);
  }
  return in_use;
}

// The last additions of this rank's shards where no bucket has them.
void Reducer::add_kept() {
  for (const Range& kept : config_.kept) {
    const auto begin = static_cast<std::size_t>(kept.begin);
    const auto elements = static_cast<std::size_t>(kept.size());
    add_own_shards(local_shards() - 1, begin, begin + elements);
    for (std::size_t k = 1; k < own_.remaining; ++k) {
      backend_.math().add(buffer(0) + begin, buffer(k) + begin, elements);
    }
  }
}

void Reducer::reduce_next_bucket() {
  const std::size_t index = launched_++;
  const Bucket& bucket = config_.buckets[index];
  const bool last = launched_ == config_.buckets.size();
  const Start start = overlaps_ && !last ? Start::now : Start::at_join;
  naming([&] { return bucket_name(step_, index, config_) + ": "; },
         [&] {
           add_own_shards(local_shards() - 1, bucket.begin, bucket.end);
           if (config_.bf16) {
             Bf16* const rounded = rounded_.at<Bf16>(0) + bucket.begin;
             backend_.math().copy(rounded, buffer(0) + bucket.begin, bucket.elements());
             sums_.all_reduce(rounded, bucket.elements(), start);
           } else {
             for (std::size_t k = 0; k < partials_.size(); ++k) partials_[k] = buffer(k) + bucket.begin;
             sums_.all_reduce(partials_, bucket.elements(), start);
           }
         });
}

}  // namespace ddp
