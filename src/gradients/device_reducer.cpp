#include "gradients/device_reducer.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/heartbeat.h"
#include "comm/reduce.h"

namespace ddp {

DeviceReducer::DeviceReducer(Communicator& ranks, Backend& backend, DeviceCommunicator* sums, ReducerConfig config)
    : backend_(backend),
      sums_(sums),
      config_(std::move(config)),
      ranks_(ranks.size()),
      tree_(make_shard_tree(ranks, config_)),
      own_(plan_own_shards(tree_, config_)),
      stride_(buffer_stride(config_.elements)),
      overlaps_(ranks_ > 1 && config_.overlap && !through_host() && config_.buckets.size() > 1) {
  check_buckets(ranks, config_);
  DDP_ASSERT(sums_ != nullptr || ranks_ == 1);
  DDP_ASSERT(!config_.bf16 || !through_host());
  memory_ = backend.allocate(own_.buffers * stride_ * sizeof(float), "the gradients");
  if (config_.bf16 && ranks_ > 1) {
    rounded_ = backend.allocate(config_.elements * sizeof(Bf16), "the gradients in bfloat16");
  }
  if (ranks_ == 1 || !through_host()) return;

  channel_ = ranks.duplicate();
  const std::size_t largest = largest_bucket(config_);
  host_ = backend.allocate_for_transfer(own_.remaining * largest * sizeof(float), "the gradients on the host");
  for (std::size_t k = 0; k < own_.remaining; ++k) partials_.push_back(host_.at<float>(0) + k * largest);
  scratch_.resize(config_.algorithm == ReductionAlgorithm::tree
                      ? tree_.scratch_elements(largest)
                      : reduce_scratch_elements(config_.algorithm, largest, ranks_));
}

void DeviceReducer::begin_step(std::int64_t step) {
  DDP_ASSERT(shards_done_ == 0 && !in_shard_);
  step_ = step;
}

float* DeviceReducer::shard_gradient() {
  DDP_ASSERT(shards_done_ < local_shards());
  in_shard_ = true;
  return buffer(in_use_);
}

void DeviceReducer::ready(std::size_t parameter_begin) {
  DDP_ASSERT(in_shard_);
  if (!overlaps_ || !last_shard()) return;
  while (launched_ < config_.buckets.size() && config_.buckets[launched_].begin >= parameter_begin) {
    reduce_bucket(launched_++);
  }
}

void DeviceReducer::shard_done() {
  DDP_ASSERT(in_shard_);
  if (!last_shard()) {
    in_use_ = add_own_shards(shards_done_, 0, config_.elements);
  } else if (ranks_ == 1) {
    add_own_shards(shards_done_, 0, config_.elements);
  } else {
    ready(0);
  }
  in_shard_ = false;
  ++shards_done_;
}

void DeviceReducer::finish() {
  DDP_ASSERT(shards_done_ == local_shards() && !in_shard_);
  if (ranks_ > 1) {
    while (launched_ < config_.buckets.size()) reduce_bucket(launched_++);
    sums_->join();
    if (config_.bf16) backend_.from_bf16(buffer(0), rounded_.at<Bf16>(0), config_.elements);
  }
  in_use_ = 0;
  shards_done_ = 0;
  launched_ = 0;
}

void DeviceReducer::sum(double* values, std::size_t count) {
  if (ranks_ == 1) return;
  try {
    sums_->all_reduce(values, count);
    sums_->join();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("step {}, the ranks' message: {}", step_, error.what()));
  }
}

void DeviceReducer::wait() {
  if (sums_ == nullptr) {
    backend_.synchronize();
  } else {
    const RankWait told("the sum of gradients");
    sums_->wait(fmt::format("step {}", step_));
  }
}

// Does the additions due after this shard, for the elements [begin, end); returns the number of buffers then in use.
std::size_t DeviceReducer::add_own_shards(int shard, std::size_t begin, std::size_t end) {
  std::size_t in_use = in_use_ + 1;
  for (int merges = own_.merges[static_cast<std::size_t>(shard)]; merges > 0; --merges) {
    --in_use;
    if (end > begin) backend_.add(buffer(in_use - 1) + begin, buffer(in_use) + begin, end - begin);
  }
  return in_use;
}

void DeviceReducer::reduce_bucket(std::size_t index) {
  const Bucket& bucket = config_.buckets[index];
  try {
    add_own_shards(local_shards() - 1, bucket.begin, bucket.end);
    if (through_host()) {
      reduce_in_host_memory(bucket);
    } else {
      float* const values = buffer(0) + bucket.begin;
      if (config_.bf16) {
        Bf16* const rounded = rounded_.at<Bf16>(0) + bucket.begin;
        backend_.to_bf16(rounded, values, bucket.elements());
        sums_->all_reduce(rounded, bucket.elements());
      } else {
        sums_->all_reduce(values, bucket.elements());
      }
    }
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", bucket_name(step_, index, config_), error.what()));
  }
}

void DeviceReducer::reduce_in_host_memory(const Bucket& bucket) {
  const std::size_t bytes = bucket.elements() * sizeof(float);
  for (std::size_t k = 0; k < partials_.size(); ++k) {
    backend_.download(partials_[k], buffer(k) + bucket.begin, bytes);
  }
  backend_.synchronize();
  if (config_.algorithm == ReductionAlgorithm::tree) {
    tree_.all_reduce_sum(*channel_, partials_, bucket.elements(), scratch_);
  } else {
    all_reduce_sum(*channel_, {partials_[0], bucket.elements()}, config_.algorithm, scratch_);
  }
  // The next bucket overwrites this memory, but its download is enqueued behind this upload.
  backend_.upload(buffer(0) + bucket.begin, partials_[0], bytes);
}

}  // namespace ddp
