// Sums of host memory by messages, on a separate thread concurrently with the backend's work.
//
// Note [Which thread computes the sums]
// The sums are computed one after the other in the order in which they were started, so that the messages of all ranks
// match. The thread computes those with Start::now; from the first with Start::at_join on, join() computes the rest
// once the thread is idle. A model with a single bucket thus needs no thread.
#include <sys/prctl.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/status/heartbeat.h"
#include "base/status/position.h"
#include "base/threads.h"
#include "base/time_slice.h"
#include "comm/sums/device_communicator.h"
#include "comm/sums/message_sums.h"

namespace ddp {
namespace {

constexpr auto kLongThreadWait = std::chrono::milliseconds(200);
// Time slice of the thread that sums, which shares a core with backward: as long as a short sum takes.
constexpr auto kTimeSlice = std::chrono::microseconds(100);

class HostMemoryCommunicator final : public MessageCommunicator {
 public:
  HostMemoryCommunicator(Communicator& ranks, const DeviceContext& device, const SumOrder& order)
      : MessageCommunicator(ranks, device, order) {
    sums_.set_eager_seconds(0);
  }
  ~HostMemoryCommunicator() override;
  HostMemoryCommunicator(const HostMemoryCommunicator&) = delete;
  HostMemoryCommunicator& operator=(const HostMemoryCommunicator&) = delete;

  std::string description() const override {
    return sums_.ranks() == 1 ? "none, one rank" : "MPI, " + sums_.order_name();
  }
  bool overlaps() const override { return true; }

  Memory allocate(DeviceMemory& memory, std::size_t bytes, const std::string& purpose) override {
    Memory shared = sums_.allocate(bytes);
    return shared.data() != nullptr ? std::move(shared) : memory.allocate(bytes, purpose);
  }
  void all_reduce(std::span<float* const> partials, std::size_t count, Start start) override {
    DDP_ASSERT(partials.size() == sums_.partials());
    begin(partials, count, start);
  }
  void all_reduce(Bf16* values, std::size_t count, Start start) override { begin(values, count, start); }
  void all_reduce(double* values, std::size_t count) override;
  void join() override;

 private:
  template <class Values>
  void begin(Values values, std::size_t count, Start start);
  void make(const PendingSums::Sum& sum) override;
  void wait_for_thread();
  void start_thread();
  void run_thread();

  // The thread uses the sums, or join() while it is idle.
  std::thread thread_;
  bool alone_ = false;  // there can be no thread
  std::mutex mutex_;    // guards pending_ and what follows
  std::condition_variable wake_thread_;
  std::condition_variable thread_progress_;
  std::size_t for_thread_ = 0;  // number of leading pending sums that the thread computes
  std::size_t made_ = 0;        // how many of these it has completed
  bool stop_ = false;
  std::optional<Error> failure_;  // error of the thread
};

HostMemoryCommunicator::~HostMemoryCommunicator() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  // In the middle of a sum the thread may be waiting for ranks that have given up.
  sums_.interrupt();
  wake_thread_.notify_one();
  thread_.join();
}

template <class Values>
void HostMemoryCommunicator::begin(Values values, std::size_t count, Start start) {
  if (sums_.ranks() == 1) return;
  {
    const std::lock_guard lock(mutex_);
    pending_.add(values, count, start);
    if (alone_ || start == Start::at_join || for_thread_ + 1 != pending_.size()) return;
    ++for_thread_;
  }
  if (!thread_.joinable()) start_thread();
  wake_thread_.notify_one();
}

// Without a thread join() computes all sums, in the same order.
void HostMemoryCommunicator::start_thread() {
  try {
    thread_ = std::thread([this] { run_thread(); });
  } catch (const std::system_error& error) {
    log_warning("gradients are summed after backward instead of meanwhile: {}", no_thread_text("that", error.code()));
    alone_ = true;
    for_thread_ = 0;
  }
}

void HostMemoryCommunicator::make(const PendingSums::Sum& sum) {
  if (sum.rounded != nullptr) {
    sums_.add(std::span(sum.rounded, sum.count));
  } else {
    sums_.add(sum.partials, sum.count);
  }
}

// The thread is idle, or is waited for: only the caller accesses the pending sums.
void HostMemoryCommunicator::join() {
  if (sums_.ranks() == 1) return;
  if (thread_.joinable()) wait_for_thread();
  sums_.set_eager_seconds(kEagerInJoin);
  make_from(for_thread_);
  sums_.meet();
  sums_.set_eager_seconds(0);
  const std::lock_guard lock(mutex_);
  note_bucket(0);
  pending_.clear();
  for_thread_ = 0;
  made_ = 0;
}

void HostMemoryCommunicator::all_reduce(double* values, std::size_t count) {
  join();
  sums_.set_eager_seconds(kEagerInJoin);
  sums_.add(std::span(values, count));
  sums_.set_eager_seconds(0);
}

// Rethrows the error of the thread.
void HostMemoryCommunicator::wait_for_thread() {
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return failure_ || made_ == for_thread_; };
  if (!thread_progress_.wait_for(lock, kLongThreadWait, ended)) {
    // On a long wait, the watchdog is told that this thread, like the other one, waits for ranks.
    const RankWait told("the sum of gradients");
    thread_progress_.wait(lock, ended);
  }
  if (failure_) throw Error(failure_->code(), pending_.name(made_) + failure_->what());
}

void HostMemoryCommunicator::run_thread() {
  // The kernel may stretch a sleep by this many nanoseconds, 50000 by default: as long as the sleeps between polls.
  static_cast<void>(prctl(PR_SET_TIMERSLACK, 1000));
  static_cast<void>(prctl(PR_SET_NAME, "reduction"));
  shorten_time_slice(kTimeSlice);
  PendingSums::Sum sum;  // a copy, because pending sums move as more are added
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_thread_.wait(lock, [this] { return stop_ || made_ < for_thread_; });
    if (stop_) return;
    sum = pending_[made_];
    note_bucket(static_cast<std::int32_t>(made_) + 1);
    SumTimes times;
    lock.unlock();
    std::optional<Error> failure;
    try {
      times.begun = now();
      make(sum);
      times.done = now();
    } catch (const Error& error) {
      failure = error;
    } catch (const std::exception& error) {
      failure.emplace(ExitCode::internal, error.what());
    }
    lock.lock();
    if (failure) {
      failure_ = std::move(failure);
      thread_progress_.notify_one();
      return;
    }
    pending_.times_of(made_).begun = times.begun;
    pending_.times_of(made_).done = times.done;
    ++made_;
    if (made_ == for_thread_) thread_progress_.notify_one();
  }
}

}  // namespace

std::unique_ptr<DeviceCommunicator> make_host_communicator(Communicator& ranks, const DeviceContext& device,
                                                           const SumOrder& order) {
  return std::make_unique<HostMemoryCommunicator>(ranks, device, order);
}

}  // namespace ddp
