#include "train/shard_statistics.h"

#include <algorithm>

#include "base/error.h"
#include "model/initialize.h"

namespace ddp {

ShardStatistics::ShardStatistics(Backend& backend, const Graph& graph, const BatchPlan& plan, int rank, bool slow)
    : backend_(backend),
      statistics_(graph.statistics()),
      count_(static_cast<std::size_t>(graph.statistic_count())),
      stride_(slow ? 2 * count_ : count_),
      shards_(plan.shards),
      mine_(plan.shards_of(rank)),
      part_{0, static_cast<std::int64_t>(count_)} {
  if (count_ == 0) return;
  allocate();
  mean_ = backend.queue().allocate(count_ * sizeof(float), "the running statistics");
  host_mean_ = std::make_unique<HostMirror>(backend.queue(), mean_.at<float>(0), count_);
  all_.resize(at(shards_));
  std::vector<float> initial(count_);
  initialize_statistics(graph, initial);
  set(initial);
}

void ShardStatistics::allocate() {
  host_own_.reset();
  own_ = backend_.queue().allocate(at(mine_.size()) * sizeof(float), "the running statistics");
  kept_ = backend_.queue().allocate(at(mine_.size()) * sizeof(float), "the running statistics");
  host_own_ = std::make_unique<HostMirror>(backend_.queue(), own_.at<float>(0), at(mine_.size()));
}

void ShardStatistics::divide(Communicator& ranks, Range mine) {
  if (count_ == 0) {
    mine_ = mine;
    return;
  }
  gather(ranks);
  mine_ = mine;
  allocate();
  push();
}

float* ShardStatistics::of_shard(std::int64_t shard) const {
  DDP_ASSERT(shard >= mine_.begin && shard < mine_.end);
  return count_ == 0 ? nullptr : own_.at<float>(at(shard - mine_.begin) * sizeof(float));
}

void ShardStatistics::set(std::span<const float> values) {
  if (count_ == 0) return;
  DDP_ASSERT(values.size() == count_);
  for (std::size_t begin = 0; begin < all_.size(); begin += count_) {
    std::copy(values.begin(), values.end(), all_.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  std::copy(values.begin(), values.end(), host_mean_->values().begin());
  push();
}

// Copies the host's values to the device.
void ShardStatistics::push() {
  for (std::int64_t shard = mine_.begin; shard < mine_.end; ++shard) {
    std::copy_n(row(shard).begin(), stride_, host_own_->values().subspan(at(shard - mine_.begin)).begin());
  }
  host_own_->push();
  host_mean_->push();
}

void ShardStatistics::pull(float rest, const double* skip) {
  if (count_ == 0) return;
  DDP_ASSERT(stride_ == 2 * count_);
  for (std::int64_t shard = mine_.begin; shard < mine_.end; ++shard) {
    float* fast = of_shard(shard);
    backend_.math().pull(fast + count_, fast, count_, rest, skip);
  }
}

void ShardStatistics::keep(const double* skip) {
  if (count_ == 0) return;
  backend_.math().copy(kept_.at<float>(0), own_.at<float>(0), at(mine_.size()), skip);
}

void ShardStatistics::put_back() {
  if (count_ == 0) return;
  backend_.math().copy(own_.at<float>(0), kept_.at<float>(0), at(mine_.size()), nullptr);
}

void ShardStatistics::gather(Communicator& ranks) {
  if (count_ == 0) return;
  host_own_->fetch();
  // The statistics of each shard come from one rank and are zero on the others, so the sum is exact in any order of
  // additions.
  std::vector<double> sums(all_.size(), 0.0);
  for (std::size_t row = 0; row < at(mine_.size()); row += count_) {
    const std::size_t begin = row + static_cast<std::size_t>(part_.begin);
    std::copy_n(host_own_->values().begin() + static_cast<std::ptrdiff_t>(begin), part_.size(),
                sums.begin() + static_cast<std::ptrdiff_t>(at(mine_.begin) + begin));
  }
  ranks.all_reduce(std::span(sums), ReduceOp::sum);
  std::transform(sums.begin(), sums.end(), all_.begin(), [](double value) { return static_cast<float>(value); });
  for (std::size_t i = 0; i < count_; ++i) {
    double sum = 0;
    for (std::int64_t shard = 0; shard < shards_; ++shard) sum += sums[at(shard) + i];
    host_mean_->values()[i] = static_cast<float>(sum / shards_);
  }
  host_mean_->push();
}

void ShardStatistics::broadcast(Communicator& ranks) {
  if (count_ == 0) return;
  ranks.broadcast(std::as_writable_bytes(std::span(all_)), 0);
  ranks.broadcast(std::as_writable_bytes(host_mean_->values()), 0);
  push();
}

std::span<const float> ShardStatistics::mean_values() const {
  return count_ == 0 ? std::span<const float>() : host_mean_->values();
}

std::vector<TensorView> ShardStatistics::mean_views() {
  std::vector<TensorView> views;
  for (const Statistic& s : statistics_) {
    views.push_back({s.name, {s.channels}, host_mean_->values().data() + s.offset});
  }
  return views;
}

std::vector<TensorView> ShardStatistics::shard_views() {
  if (count_ == 0) return {};
  const auto count = static_cast<std::int64_t>(count_);
  const std::vector<std::int64_t> plain = {shards_, count};
  const std::vector<std::int64_t> with_slow = {shards_, 2, count};
  return {{"running_statistics", stride_ == count_ ? plain : with_slow, all_.data()}};
}

}  // namespace ddp
