// All-reduce of host memory by messages, with any of the reduction algorithms.
//
//   MessageSums sums(ranks, {Reduction::tree, /*shards=*/8});
//   sums.add(partials, count);   // into partials[0], bit-identical on all ranks
//
// Used by one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/memory.h"
#include "backend/tensor.h"
#include "comm/communicator.h"
#include "comm/sums/device_communicator.h"
#include "comm/sums/reduce.h"
#include "comm/sums/shard_tree.h"
#include "comm/transport/shared_memory.h"

namespace ddp {

class MessageSums {
 public:
  // Duplicates `ranks`. Throws Error(usage) for fewer shards than ranks.
  MessageSums(Communicator& ranks, const SumOrder& order);

  int ranks() const { return channel_ == nullptr ? 1 : channel_->size(); }
  // The number of partial sums that add() takes.
  std::size_t partials() const { return tree_ ? tree_->accumulation().remaining : 1; }
  // "messages within the host", "a ring of messages".
  std::string order_name() const;

  // Collective: memory of which the ranks of the host add values without messages; empty if they cannot. Others may read it
  // and write to it after a sum, until meet().
  Memory allocate(std::size_t bytes);

  void add(std::span<float* const> partials, std::size_t count);
  void add(std::span<Bf16> values);
  void add(std::span<double> values);
  // If values in such memory were added since the last meet(), returns once all ranks of the host have called it.
  void meet();

  // How long a wait spins before it sleeps: see Communicator::set_eager_seconds().
  void set_eager_seconds(double seconds);
  // Makes present and later waits throw; from any thread.
  void interrupt() noexcept;

 private:
  template <class T>
  std::span<T> scratch(std::size_t elements);
  WithinHost within_host(const void* values);
  template <class T>
  void add_in_ring(std::span<T> values);
  void add_in_tree(std::span<float* const> partials, std::size_t count);

  Reduction algorithm_;
  bool scatter_;
  std::unique_ptr<Communicator> channel_;  // null: one rank
  Rings rings_;
  std::optional<ShardTree> tree_;
  // What allocate() gave, as long as it is in use; and, of the sum that is added, where each rank of the host has it.
  std::vector<std::weak_ptr<const SharedMemory>> shared_;
  std::vector<std::byte*> at_;
  std::vector<float*> floats_at_;
  bool meets_ = false;
  // Grows to the largest sum and stays, so that later steps allocate nothing.
  Memory scratch_;
};

// The sums that were begun since the last join(), in their order, which is the same on all ranks.
class PendingSums {
 public:
  // What one sum adds: partial sums of floats, or numbers in bfloat16.
  struct Sum {
    std::vector<float*> partials;
    Bf16* rounded = nullptr;
    std::size_t count = 0;
    Start start = Start::now;
  };

  std::size_t size() const { return size_; }
  const Sum& operator[](std::size_t index) const { return sums_[index]; }
  void add(std::span<float* const> partials, std::size_t count, Start start);
  void add(Bf16* values, std::size_t count, Start start);
  void clear() { size_ = 0; }
  // Kept by clear() until the next add().
  std::span<const SumTimes> times() const { return times_; }
  SumTimes& times_of(std::size_t index) { return times_[index]; }
  // "gradient bucket 2 of 5: ", for errors; `index` counts from 0.
  std::string name(std::size_t index) const;

 private:
  Sum& next(std::size_t count, Start start);

  std::vector<SumTimes> times_;
  std::vector<Sum> sums_;  // the first size_ of them; the others keep their memory
  std::size_t size_ = 0;
};

// What the communicators over messages have in common.
class MessageCommunicator : public DeviceCommunicator {
 public:
  bool recordable() const final { return sums_.ranks() == 1; }
  std::span<const SumTimes> sum_times() const final { return pending_.times(); }
  void wait(const std::string& /*what*/) final {
    join();
    queue_.synchronize();
  }
  void wait_for(DeviceEvent& event, const std::string& /*what*/) final { event.wait(); }

 protected:
  MessageCommunicator(Communicator& ranks, const DeviceContext& device, const SumOrder& order)
      : queue_(device.queue()), sums_(ranks, order) {}

  // Computes the pending sums from number `first` on.
  void make_from(std::size_t first);

  DeviceQueue& queue_;
  MessageSums sums_;
  PendingSums pending_;

 private:
  virtual void make(const PendingSums::Sum& sum) = 0;
};

// How long join() polls eagerly; a thread that runs beside backward does not at all.
inline constexpr double kEagerInJoin = 1e-3;

}  // namespace ddp
