#include "train/step/shard_statistics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "model/initialize.h"

namespace ddp {
namespace {

constexpr const char* kStatisticsExchange = "the exchange of running statistics";
// Ranks whose rows are on their way to or from rank 0 at the same time.
constexpr std::size_t kRanksAtOnce = 16;

}  // namespace

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
  mean_ = backend.memory().allocate(count_ * sizeof(float), "the running statistics");
  host_mean_ = std::make_unique<HostMirror>(backend.device(), mean_.at<float>(0), count_);
  std::vector<float> initial(count_);
  initialize_statistics(graph, initial);
  set(initial);
}

void ShardStatistics::allocate() {
  host_own_.reset();
  own_ = backend_.memory().allocate(at(mine_.size()) * sizeof(float), "the running statistics");
  kept_ = backend_.memory().allocate(at(mine_.size()) * sizeof(float), "the running statistics");
  host_own_ = std::make_unique<HostMirror>(backend_.device(), own_.at<float>(0), at(mine_.size()));
}

void ShardStatistics::divide(Communicator& ranks, Range mine) {
  if (count_ == 0) {
    mine_ = mine;
    return;
  }
  gather(ranks);
  mine_ = mine;
  allocate();
  spread_rows(ranks);
  host_own_->push();
}

float* ShardStatistics::of_shard(std::int64_t shard) const {
  DDP_ASSERT(shard >= mine_.begin && shard < mine_.end);
  return count_ == 0 ? nullptr : own_.at<float>(at(shard - mine_.begin) * sizeof(float));
}

void ShardStatistics::set(std::span<const float> values) {
  if (count_ == 0) return;
  DDP_ASSERT(values.size() == count_);
  std::vector<float> row;
  for (std::size_t begin = 0; begin < stride_; begin += count_) row.insert(row.end(), values.begin(), values.end());
  set_rows(row);
  std::copy(values.begin(), values.end(), host_mean_->values().begin());
  host_own_->push();
  host_mean_->push();
}

void ShardStatistics::set_rows(std::span<const float> row) {
  const std::span<float> own = host_own_->values();
  for (std::size_t begin = 0; begin < own.size(); begin += stride_) std::copy(row.begin(), row.end(), &own[begin]);
  all_.clear();
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
  backend_.math().copy(own_.at<float>(0), kept_.at<float>(0), at(mine_.size()));
}

std::vector<ShardStatistics::Place> ShardStatistics::gather_places(Communicator& ranks) const {
  const Place mine{mine_, part_};
  std::vector<Place> places(ranks.rank() == 0 ? static_cast<std::size_t>(ranks.size()) : 0);
  ranks.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(places)), kStatisticsExchange);
  return places;
}

// The part of this rank's rows that it updates.
void ShardStatistics::pack_part(std::vector<float>& packed) const {
  const std::span<float> own = host_own_->values();
  packed.clear();
  for (std::size_t begin = 0; begin < own.size(); begin += count_) {
    const std::span<float> part =
        own.subspan(begin + static_cast<std::size_t>(part_.begin), static_cast<std::size_t>(part_.size()));
    packed.insert(packed.end(), part.begin(), part.end());
  }
}

void ShardStatistics::unpack_part(const Place& place, std::span<const float> packed) {
  const auto size = static_cast<std::size_t>(place.part.size());
  std::size_t to = at(place.rows.begin) + static_cast<std::size_t>(place.part.begin);
  for (; !packed.empty(); packed = packed.subspan(size), to += count_) std::copy_n(packed.begin(), size, &all_[to]);
}

// On rank 0 from all ranks, some at a time.
void ShardStatistics::receive_rows(Communicator& ranks) {
  const std::vector<Place> places = gather_places(ranks);
  std::vector<float> mine;
  pack_part(mine);
  if (ranks.rank() != 0) {
    const Outgoing outgoing{std::as_bytes(std::span(mine)), 0};
    ranks.exchange(std::span(&outgoing, mine.empty() ? 0 : 1), {}, kStatisticsExchange);
    return;
  }
  all_.assign(at(shards_), 0.0F);
  unpack_part(places[0], mine);
  std::vector<std::vector<float>> arrived(kRanksAtOnce);
  for (std::size_t first = 1; first < places.size(); first += kRanksAtOnce) {
    const std::size_t end = std::min(first + kRanksAtOnce, places.size());
    std::vector<Incoming> incoming;
    for (std::size_t rank = first; rank < end; ++rank) {
      const Place& place = places[rank];
      std::vector<float>& rows = arrived[rank - first];
      rows.resize(at(place.rows.size()) / count_ * static_cast<std::size_t>(place.part.size()));
      if (!rows.empty()) incoming.push_back({std::as_writable_bytes(std::span(rows)), static_cast<int>(rank)});
    }
    ranks.exchange({}, incoming, kStatisticsExchange);
    for (std::size_t rank = first; rank < end; ++rank) unpack_part(places[rank], arrived[rank - first]);
  }
}

// From rank 0 to each rank its own.
void ShardStatistics::spread_rows(Communicator& ranks) {
  const std::vector<Place> places = gather_places(ranks);
  const std::span<float> own = host_own_->values();
  if (ranks.rank() != 0) {
    const Incoming incoming{std::as_writable_bytes(own), 0};
    ranks.exchange({}, std::span(&incoming, own.empty() ? 0 : 1), kStatisticsExchange);
    return;
  }
  const auto rows_of = [&](std::size_t rank) {
    return std::span(all_).subspan(at(places[rank].rows.begin), at(places[rank].rows.size()));
  };
  std::copy_n(rows_of(0).begin(), own.size(), own.begin());
  for (std::size_t first = 1; first < places.size(); first += kRanksAtOnce) {
    std::vector<Outgoing> outgoing;
    for (std::size_t rank = first; rank < std::min(first + kRanksAtOnce, places.size()); ++rank) {
      const std::span<float> rows = rows_of(rank);
      if (!rows.empty()) outgoing.push_back({std::as_bytes(rows), static_cast<int>(rank)});
    }
    ranks.exchange(outgoing, {}, kStatisticsExchange);
  }
}

void ShardStatistics::gather(Communicator& ranks) {
  if (count_ == 0) return;
  host_own_->fetch();
  receive_rows(ranks);
  float broken = 0;
  if (ranks.rank() == 0) {
    const std::vector<float> mean = mean_of_rows(shards_);
    std::copy_n(mean.begin(), count_, host_mean_->values().begin());
    broken = std::all_of(all_.begin(), all_.end(), [](float value) { return std::isfinite(value); }) ? 0 : 1;
  }
  ranks.broadcast(std::as_writable_bytes(host_mean_->values()), 0);
  ranks.broadcast(std::as_writable_bytes(std::span(&broken, 1)), 0);
  finite_ = broken == 0;
  host_mean_->push();
}

std::vector<float> ShardStatistics::mean_of_rows(int rows) const {
  std::vector<float> mean(stride_);
  for (std::size_t i = 0; i < stride_; ++i) {
    double sum = 0;
    for (std::int64_t row = 0; row < rows; ++row) sum += all_[at(row) + i];
    mean[i] = static_cast<float>(sum / rows);
  }
  return mean;
}

void ShardStatistics::broadcast(Communicator& ranks) {
  if (count_ == 0) return;
  std::int64_t read = std::exchange(read_, 0);
  ranks.broadcast(std::as_writable_bytes(std::span(&read, 1)), 0);
  ranks.broadcast(std::as_writable_bytes(host_mean_->values()), 0);
  if (read == 0) {
    const std::vector<float> mean(host_mean_->values().begin(), host_mean_->values().end());
    set(mean);
    return;
  }
  if (read == shards_) {
    spread_rows(ranks);
  } else {
    std::vector<float> row(stride_);
    if (ranks.rank() == 0) row = mean_of_rows(static_cast<int>(read));
    ranks.broadcast(std::as_writable_bytes(std::span(row)), 0);
    set_rows(row);
  }
  host_own_->push();
  host_mean_->push();
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
  if (all_.empty()) return {};
  const auto shards = static_cast<std::int64_t>(all_.size() / stride_);
  const auto count = static_cast<std::int64_t>(count_);
  const std::vector<std::int64_t> plain = {shards, count};
  const std::vector<std::int64_t> with_slow = {shards, 2, count};
  return {{"running_statistics", stride_ == count_ ? plain : with_slow, all_.data()}};
}

std::vector<TensorView> ShardStatistics::shards_to_read(int shards) {
  if (count_ == 0) return {};
  read_ = shards;
  all_.assign(at(shards), 0.0F);
  return shard_views();
}

}  // namespace ddp
