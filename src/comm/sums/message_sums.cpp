#include "comm/sums/message_sums.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/status/position.h"

namespace ddp {

MessageSums::MessageSums(Communicator& ranks, const SumOrder& order)
    : algorithm_(order.algorithm), scatter_(order.scatter) {
  DDP_ASSERT(!scatter_ || algorithm_ == Reduction::ring);
  if (algorithm_ == Reduction::tree) tree_.emplace(make_shard_tree(ranks, order.shards, order.shard_counts));
  const auto size = static_cast<std::size_t>(ranks.size());
  DDP_ASSERT(order.hosts.empty() || order.hosts.size() == size);
  rings_ =
      plan_rings(ranks.rank(), order.hosts.empty() ? std::vector<int>(size) : order.hosts, order.one_ring_if_uneven);
  if (ranks.size() > 1) channel_ = ranks.duplicate();
}

std::string MessageSums::order_name() const {
  switch (algorithm_) {
    case Reduction::ring:
      if (rings_.most_local == 1) return "a ring of messages";
      return fmt::format("{} within {}", shared_.empty() ? "messages" : "shared memory",
                         rings_.across.size() == 1 ? "the host" : "hosts and rings between them");
    case Reduction::root:
      return "all sums on rank 0";
    case Reduction::tree:
      break;
  }
  return shared_.empty() ? "a fixed tree of messages" : "a fixed tree in shared memory";
}

Memory MessageSums::allocate(std::size_t bytes) {
  const bool shares = algorithm_ == Reduction::ring || (tree_ && tree_->one_of_each() && rings_.across.size() == 1);
  if (channel_ == nullptr || !shares || rings_.most_local == 1) return {};
  auto shared = std::make_shared<const SharedMemory>(*channel_, bytes);
  std::int64_t all = 1;
  for (const int rank : rings_.local.ranks) all = std::min<std::int64_t>(all, shared->of(rank).empty() ? 0 : 1);
  channel_->all_reduce(std::span(&all, 1), ReduceOp::min);
  if (all == 0) return {};
  shared_.push_back(shared);
  std::byte* const own = shared->of(channel_->rank()).data();
  return {own, bytes, [shared = std::move(shared)](std::byte*) mutable { shared.reset(); }};
}

// Where the ranks of the host have what this one has at `values`.
WithinHost MessageSums::within_host(const void* values) {
  WithinHost within{.at = {}, .scatter = scatter_};
  std::erase_if(shared_, [](const std::weak_ptr<const SharedMemory>& each) { return each.expired(); });
  const auto* const data = static_cast<const std::byte*>(values);
  for (const std::weak_ptr<const SharedMemory>& each : shared_) {
    const std::shared_ptr<const SharedMemory> shared = each.lock();
    const std::span<const std::byte> own = shared->of(channel_->rank());
    if (std::less<>()(data, own.data()) || !std::less<>()(data, own.data() + own.size())) continue;
    at_.clear();
    for (const int rank : rings_.local.ranks) at_.push_back(shared->of(rank).data() + (data - own.data()));
    within.at = at_;
    meets_ = true;
  }
  return within;
}

template <class T>
void MessageSums::add_in_ring(std::span<T> values) {
  const WithinHost within = within_host(values.data());
  const std::size_t elements = ring_scratch_elements(values.size(), rings_, !within.at.empty());
  ring_sum(*channel_, rings_, values, scratch<T>(elements), within);
}

void MessageSums::add_in_tree(std::span<float* const> partials, std::size_t count) {
  const WithinHost within = within_host(partials[0]);
  if (within.at.empty()) {
    tree_->all_reduce_sum(*channel_, partials, count, scratch<float>(tree_->scratch_elements(count)));
    return;
  }
  floats_at_.clear();
  for (std::byte* const at : within.at) floats_at_.push_back(static_cast<float*>(static_cast<void*>(at)));
  meet_on_host(*channel_, rings_);
  tree_->add_in_memory(floats_at_, count);
}

void MessageSums::meet() {
  if (std::exchange(meets_, false)) meet_on_host(*channel_, rings_);
}

void MessageSums::add(std::span<float* const> partials, std::size_t count) {
  DDP_ASSERT(partials.size() == this->partials());
  if (channel_ == nullptr || count == 0) return;
  if (tree_) {
    add_in_tree(partials, count);
  } else if (algorithm_ == Reduction::ring) {
    add_in_ring(std::span(partials[0], count));
  } else {
    root_sum(*channel_, std::span(partials[0], count), scratch<float>(channel_->rank() == 0 ? count : 0));
  }
}

void MessageSums::add(std::span<Bf16> values) {
  DDP_ASSERT(algorithm_ == Reduction::ring);
  if (channel_ != nullptr) add_in_ring(values);
}

void MessageSums::add(std::span<double> values) {
  if (channel_ != nullptr) channel_->tree_sum(values);
}

void MessageSums::set_eager_seconds(double seconds) {
  if (channel_ != nullptr) channel_->set_eager_seconds(seconds);
}

void MessageSums::interrupt() noexcept {
  if (channel_ != nullptr) channel_->interrupt();
}

template <class T>
std::span<T> MessageSums::scratch(std::size_t elements) {
  const std::size_t bytes = elements * sizeof(T);
  if (scratch_.bytes() < bytes) scratch_ = allocate_on_host(bytes, "the sums of other ranks");
  return {scratch_.at<T>(0), elements};
}

PendingSums::Sum& PendingSums::next(std::size_t count, Start start) {
  if (size_ == 0) times_.clear();
  times_.push_back({now(), 0, 0});
  if (size_ == sums_.size()) sums_.emplace_back();
  Sum& sum = sums_[size_++];
  sum.partials.clear();
  sum.rounded = nullptr;
  sum.count = count;
  sum.start = start;
  return sum;
}

void PendingSums::add(std::span<float* const> partials, std::size_t count, Start start) {
  next(count, start).partials.assign(partials.begin(), partials.end());
}

void PendingSums::add(Bf16* values, std::size_t count, Start start) { next(count, start).rounded = values; }

std::string PendingSums::name(std::size_t index) const {
  return fmt::format("gradient bucket {} of {}: ", index + 1, size_);
}

void MessageCommunicator::make_from(std::size_t first) {
  for (std::size_t index = first; index < pending_.size(); ++index) {
    note_bucket(static_cast<std::int32_t>(index) + 1);
    try {
      pending_.times_of(index).begun = now();
      make(pending_[index]);
      pending_.times_of(index).done = now();
    } catch (const Error& error) {
      throw Error(error.code(), pending_.name(index) + error.what());
    }
  }
}

}  // namespace ddp
