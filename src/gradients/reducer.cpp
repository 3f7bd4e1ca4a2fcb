#include "gradients/reducer.h"

#include <fmt/core.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "backend/memory.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/heartbeat.h"
#include "comm/shard_tree.h"

namespace ddp {
namespace {

// How long finish() polls eagerly, see Communicator::set_eager_seconds(); the thread, which runs beside backward, does
// not at all.
constexpr double kEagerInFinish = 1e-3;
constexpr auto kLongWait = std::chrono::milliseconds(200);

struct AlignedDelete {
  void operator()(float* memory) const { ::operator delete[](memory, std::align_val_t{kMemoryAlignment}); }
};
using AlignedFloats = std::unique_ptr<float[], AlignedDelete>;

// Zeroed, so that no step pays for the first touch of a page.
AlignedFloats allocate_floats(std::size_t elements) {
  AlignedFloats memory(new (std::align_val_t{kMemoryAlignment}) float[std::max<std::size_t>(elements, 1)]);
  std::fill_n(memory.get(), elements, 0.0F);
  return memory;
}

}  // namespace

class Reducer::Impl {
 public:
  Impl(Communicator& communicator, ReducerConfig config)
      : config_(std::move(config)),
        ranks_(communicator.size()),
        tree_(make_shard_tree(communicator, config_)),
        local_shards_(static_cast<int>(tree_.run().size())),
        own_(plan_own_shards(tree_, config_)),
        stride_(buffer_stride(config_.elements)) {
    check_buckets(communicator, config_);
    memory_ = allocate_floats(stride_ * own_.buffers);
    partials_.resize(own_.remaining);
    if (ranks_ == 1) return;

    channel_ = communicator.duplicate();
    channel_->set_eager_seconds(0);
    const std::size_t largest = largest_bucket(config_);
    scratch_elements_ = config_.algorithm == ReductionAlgorithm::tree
                            ? tree_.scratch_elements(largest)
                            : reduce_scratch_elements(config_.algorithm, largest, ranks_);
    scratch_ = allocate_floats(scratch_elements_);
    if (config_.overlap && config_.buckets.size() > 1) thread_ = std::thread([this] { run_thread(); });
  }

  ~Impl() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    // In the midst of a step the thread may wait for ranks that have given up.
    channel_->interrupt();
    wake_thread_.notify_one();
    thread_.join();
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  int local_shards() const { return local_shards_; }
  bool overlaps() const { return thread_.joinable(); }
  float* gradient() { return memory_.get(); }

  void sum(double* values, std::size_t count) {
    if (ranks_ == 1) return;
    channel_->set_eager_seconds(kEagerInFinish);
    channel_->all_reduce(std::span(values, count), ReduceOp::sum);
    channel_->set_eager_seconds(0);
  }
  double exposed_seconds() const { return exposed_seconds_; }
  double communication_seconds() const { return communication_seconds_; }

  void begin_step(std::int64_t step) {
    DDP_ASSERT(shards_done_ == 0 && !in_shard_);
    step_ = step;
  }

  float* shard_gradient() {
    DDP_ASSERT(shards_done_ < local_shards_);
    in_shard_ = true;
    return buffer(in_use_);
  }

  void ready(std::size_t parameter_begin) {
    DDP_ASSERT(in_shard_);
    if (!thread_.joinable() || !last_shard()) return;
    std::size_t count = launched_;
    while (count < by_thread() && config_.buckets[count].begin >= parameter_begin) ++count;
    if (count == launched_) return;
    {
      const std::lock_guard lock(mutex_);
      launched_ = count;
    }
    wake_thread_.notify_one();
  }

  void shard_done() {
    DDP_ASSERT(in_shard_);
    if (!last_shard()) {
      in_use_ = add_own_shards(shards_done_, {0, config_.elements});
    } else {
      ready(0);
      if (ranks_ == 1) add_own_shards(shards_done_, {0, config_.elements});
    }
    in_shard_ = false;
    ++shards_done_;
  }

  void finish() {
    DDP_ASSERT(shards_done_ == local_shards_ && !in_shard_);
    const double begin = now();
    double communication = 0;
    if (ranks_ > 1) {
      std::size_t next = 0;
      if (thread_.joinable()) {
        communication += wait_for_thread();
        next = by_thread();
      }
      const double here = now();
      channel_->set_eager_seconds(kEagerInFinish);
      for (; next < config_.buckets.size(); ++next) reduce_bucket(next);
      channel_->set_eager_seconds(0);
      communication += now() - here;
    }
    in_use_ = 0;
    shards_done_ = 0;
    ++step_;
    communication_seconds_ = communication;
    exposed_seconds_ = now() - begin;
  }

 private:
  struct Elements {
    std::size_t begin;
    std::size_t end;
  };

  bool last_shard() const { return shards_done_ + 1 == local_shards_; }
  // The buckets that the thread reduces: all but the last, see Note [When a bucket is reduced].
  std::size_t by_thread() const { return config_.buckets.size() - 1; }
  float* buffer(std::size_t index) const { return memory_.get() + index * stride_; }

  // Does the additions due after this shard, for these elements; returns the number of buffers then in use.
  std::size_t add_own_shards(int shard, Elements elements) const {
    std::size_t in_use = in_use_ + 1;
    for (int merges = own_.merges[static_cast<std::size_t>(shard)]; merges > 0; --merges) {
      --in_use;
      add_to(buffer(in_use - 1) + elements.begin, buffer(in_use) + elements.begin, elements.end - elements.begin);
    }
    return in_use;
  }

  void reduce_bucket(std::size_t index);
  double wait_for_thread();
  void run_thread();

  const ReducerConfig config_;
  const int ranks_;
  ShardTree tree_;
  const int local_shards_;
  const Accumulation own_;    // how this rank adds its own shards
  const std::size_t stride_;  // elements from one buffer to the next
  AlignedFloats memory_;      // the buffers of own_; the first becomes the gradient
  AlignedFloats scratch_;     // for the reduction over the ranks
  std::size_t scratch_elements_ = 0;
  std::vector<float*> partials_;
  std::unique_ptr<Communicator> channel_;  // of whoever reduces: the thread, or finish() when the thread is idle

  // The thread reads these while it reduces: they do not change between the last shard's beginning and the end of
  // finish().
  std::int64_t step_ = 0;
  std::size_t in_use_ = 0;  // buffers that hold sums of earlier shards
  // These are the caller's alone.
  int shards_done_ = 0;
  bool in_shard_ = false;
  double exposed_seconds_ = 0;
  double communication_seconds_ = 0;

  std::thread thread_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_thread_;
  std::condition_variable thread_progress_;
  std::size_t launched_ = 0;  // buckets given to the thread in this step; written by the caller alone
  std::size_t reduced_ = 0;   // buckets that the thread has reduced in this step
  double thread_seconds_ = 0;
  bool stop_ = false;
  std::exception_ptr error_;
};

void Reducer::Impl::reduce_bucket(std::size_t index) {
  const Bucket& bucket = config_.buckets[index];
  try {
    add_own_shards(local_shards_ - 1, {bucket.begin, bucket.end});
    const std::span<float> scratch(scratch_.get(), scratch_elements_);
    if (config_.algorithm == ReductionAlgorithm::tree) {
      for (std::size_t k = 0; k < partials_.size(); ++k) partials_[k] = buffer(k) + bucket.begin;
      tree_.all_reduce_sum(*channel_, partials_, bucket.elements(), scratch);
    } else {
      all_reduce_sum(*channel_, {buffer(0) + bucket.begin, bucket.elements()}, config_.algorithm, scratch);
    }
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", bucket_name(step_, index, config_), error.what()));
  }
}

// Returns the seconds that the thread has worked in this step; throws what it has thrown.
double Reducer::Impl::wait_for_thread() {
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return error_ || reduced_ == by_thread(); };
  if (!thread_progress_.wait_for(lock, kLongWait, ended)) {
    // Where it lasts, the watchdog is told that this thread waits for ranks as the other one does.
    const RankWait told("the sum of gradients");
    thread_progress_.wait(lock, ended);
  }
  if (error_) std::rethrow_exception(error_);
  launched_ = 0;
  reduced_ = 0;
  return std::exchange(thread_seconds_, 0);
}

void Reducer::Impl::run_thread() {
  // The kernel may stretch a sleep by this many nanoseconds, 50000 by default: as long as the sleeps between polls.
  static_cast<void>(prctl(PR_SET_TIMERSLACK, 1000));
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_thread_.wait(lock, [this] { return stop_ || reduced_ < launched_; });
    if (stop_) return;
    const std::size_t index = reduced_;
    lock.unlock();
    const double begin = now();
    std::exception_ptr error;
    try {
      reduce_bucket(index);
    } catch (...) {
      error = std::current_exception();
    }
    const double seconds = now() - begin;
    lock.lock();
    thread_seconds_ += seconds;
    if (error) {
      error_ = error;
      thread_progress_.notify_one();
      return;
    }
    ++reduced_;
    if (reduced_ == by_thread()) thread_progress_.notify_one();
  }
}

Reducer::Reducer(Communicator& communicator, ReducerConfig config)
    : impl_(std::make_unique<Impl>(communicator, std::move(config))) {}
Reducer::~Reducer() = default;

int Reducer::local_shards() const { return impl_->local_shards(); }
bool Reducer::overlaps() const { return impl_->overlaps(); }
void Reducer::begin_step(std::int64_t step) { impl_->begin_step(step); }
float* Reducer::shard_gradient() { return impl_->shard_gradient(); }
void Reducer::ready(std::size_t parameter_begin) { impl_->ready(parameter_begin); }
void Reducer::shard_done() { impl_->shard_done(); }
void Reducer::finish() { impl_->finish(); }
float* Reducer::gradient() { return impl_->gradient(); }
void Reducer::sum(double* values, std::size_t count) { impl_->sum(values, count); }
double Reducer::exposed_seconds() const { return impl_->exposed_seconds(); }
double Reducer::communication_seconds() const { return impl_->communication_seconds(); }

}  // namespace ddp
