#include "comm/transport/threads.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace ddp {
namespace {

// A message that stays with its sender until the receiver has copied it.
struct Parcel {
  std::span<const std::byte> data;
  int to = 0;
  bool taken = false;
};

// State shared by the ranks of one run; guarded by `mutex`.
struct World {
  explicit World(int ranks) : size(ranks), returned(static_cast<std::size_t>(ranks), false) {}

  const int size;
  std::mutex mutex;
  std::map<std::tuple<int, int, int>, std::deque<Parcel*>> queues;  // by (context, from, to), in order of sending
  std::map<std::pair<int, int>, int> contexts;                      // (context, its n-th duplicate) -> context
  std::vector<bool> returned;                                       // ranks whose body has returned
  std::string stopped;                                              // why no rank can go on
  std::exception_ptr first_error;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<World> world, int rank, int context)
      : world_(std::move(world)), rank_(rank), context_(context) {
    // A rank that polls eagerly would starve the others of the lock and the cores.
    set_eager_seconds(0);
  }

  int rank() const override { return rank_; }
  int size() const override { return world_->size; }

  std::unique_ptr<Communicator> duplicate() override {
    int context = 0;
    {
      const std::lock_guard lock(world_->mutex);
      const int fresh = static_cast<int>(world_->contexts.size()) + 1;
      context = world_->contexts.try_emplace({context_, duplicates_++}, fresh).first->second;
    }
    auto copy = std::make_unique<ThreadCommunicator>(world_, rank_, context);
    copy->set_timeout(timeout());
    return copy;
  }

  void abort(int exit_code) noexcept override {
    const std::lock_guard lock(world_->mutex);
    if (world_->stopped.empty()) world_->stopped = fmt::format("rank {} aborted with exit code {}", rank_, exit_code);
  }

 protected:
  void post(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    const std::lock_guard lock(world_->mutex);
    parcels_.clear();
    for (const Outgoing& message : out) parcels_.push_back({message.data, message.to});
    for (Parcel& parcel : parcels_) {
      DDP_ASSERT(parcel.to != rank_ && parcel.to >= 0 && parcel.to < size());
      queue(rank_, parcel.to).push_back(&parcel);
    }
    expected_.assign(in.begin(), in.end());
  }

  Progress poll() override {
    const std::lock_guard lock(world_->mutex);
    if (!world_->stopped.empty()) throw Error(ExitCode::rank_lost, world_->stopped);
    const std::size_t expected = expected_.size();
    take_what_has_come();
    const std::vector<int> peers = pending();
    if (peers.empty()) return Progress::all;
    for (const int peer : peers) {
      check(!world_->returned[static_cast<std::size_t>(peer)], ExitCode::rank_lost,
            "rank {} waits for rank {}, which has returned", rank_, peer);
    }
    return expected_.size() < expected ? Progress::some : Progress::none;
  }

  std::vector<int> pending_peers() const override {
    const std::lock_guard lock(world_->mutex);
    return pending();
  }

  void give_up() noexcept override {
    const std::lock_guard lock(world_->mutex);
    for (Parcel& parcel : parcels_) {
      if (!parcel.taken) std::erase(queue(rank_, parcel.to), &parcel);
    }
    parcels_.clear();
    expected_.clear();
  }

 private:
  std::deque<Parcel*>& queue(int from, int to) { return world_->queues[{context_, from, to}]; }

  // Copies the messages that have arrived, in the order in which they were expected. The lock must be held.
  void take_what_has_come() {
    std::erase_if(expected_, [this](const Incoming& incoming) {
      std::deque<Parcel*>& parcels = queue(incoming.from, rank_);
      if (parcels.empty()) return false;
      Parcel& parcel = *parcels.front();
      check(parcel.data.size() == incoming.data.size(), ExitCode::internal,
            "internal error: rank {} expects {} bytes from rank {}, which sends {}", rank_, incoming.data.size(),
            incoming.from, parcel.data.size());
      if (!parcel.data.empty()) std::memcpy(incoming.data.data(), parcel.data.data(), parcel.data.size());
      parcel.taken = true;
      parcels.pop_front();
      return true;
    });
  }

  // The ranks that have not yet sent or received, in order, without duplicates. The lock must be held.
  std::vector<int> pending() const {
    std::vector<int> peers;
    for (const Incoming& incoming : expected_) peers.push_back(incoming.from);
    for (const Parcel& parcel : parcels_) {
      if (!parcel.taken) peers.push_back(parcel.to);
    }
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    return peers;
  }

  std::shared_ptr<World> world_;
  int rank_;
  int context_;
  int duplicates_ = 0;
  std::vector<Parcel> parcels_;     // being sent
  std::vector<Incoming> expected_;  // not yet received
};

void run_rank(const std::shared_ptr<World>& world, int rank, const std::function<void(Communicator&)>& body,
              double timeout_seconds) {
  std::exception_ptr failure;
  std::string why;
  try {
    ThreadCommunicator communicator(world, rank, 0);
    communicator.set_timeout(timeout_seconds);
    body(communicator);
  } catch (const std::exception& error) {
    failure = std::current_exception();
    why = error.what();
  } catch (...) {
    failure = std::current_exception();
    why = "an exception of unknown type";
  }
  const std::lock_guard lock(world->mutex);
  world->returned[static_cast<std::size_t>(rank)] = true;
  if (!failure) return;
  if (!world->first_error) world->first_error = failure;
  if (world->stopped.empty()) world->stopped = fmt::format("rank {} stopped: {}", rank, why);
}

}  // namespace

void run_as_threads(int ranks, const std::function<void(Communicator&)>& body, double timeout_seconds) {
  DDP_ASSERT(ranks > 0);
  const auto world = std::make_shared<World>(ranks);
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&world, &body, rank, timeout_seconds] { run_rank(world, rank, body, timeout_seconds); });
    }
  }
  if (world->first_error) std::rethrow_exception(world->first_error);
}

}  // namespace ddp
