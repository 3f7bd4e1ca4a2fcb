#include "comm/message_sums.h"

#include <fmt/core.h>

#include "base/clock.h"
#include "base/error.h"

namespace ddp {

MessageSums::MessageSums(Communicator& ranks, const SumOrder& order) : algorithm_(order.algorithm) {
  if (algorithm_ == Reduction::tree) tree_.emplace(make_shard_tree(ranks, order.shards, order.shard_counts));
  const auto size = static_cast<std::size_t>(ranks.size());
  DDP_ASSERT(order.hosts.empty() || order.hosts.size() == size);
  rings_ = plan_rings(ranks.rank(), order.hosts.empty() ? std::vector<int>(size) : order.hosts);
  if (ranks.size() > 1) channel_ = ranks.duplicate();
}

std::string MessageSums::order_name() const {
  switch (algorithm_) {
    case Reduction::ring:
      if (rings_.across.size() == 1) return "messages within the host";
      return rings_.local.size() > 1 ? "messages within hosts and rings between them" : "a ring of messages";
    case Reduction::root:
      return "all sums on rank 0";
    case Reduction::tree:
      break;
  }
  return "a fixed tree of messages";
}

void MessageSums::add(std::span<float* const> partials, std::size_t count) {
  DDP_ASSERT(partials.size() == this->partials());
  if (channel_ == nullptr || count == 0) return;
  if (tree_) {
    tree_->all_reduce_sum(*channel_, partials, count, scratch<float>(tree_->scratch_elements(count)));
  } else if (algorithm_ == Reduction::ring) {
    ring_sum(*channel_, rings_, std::span(partials[0], count), scratch<float>(ring_scratch_elements(count, rings_)));
  } else {
    root_sum(*channel_, std::span(partials[0], count), scratch<float>(channel_->rank() == 0 ? count : 0));
  }
}

void MessageSums::add(std::span<Bf16> values) {
  DDP_ASSERT(algorithm_ == Reduction::ring);
  if (channel_ == nullptr) return;
  ring_sum(*channel_, rings_, values, scratch<Bf16>(ring_scratch_elements(values.size(), rings_)));
}

void MessageSums::add(std::span<double> values) {
  if (channel_ != nullptr) channel_->all_reduce(values, ReduceOp::sum);
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

}  // namespace ddp
