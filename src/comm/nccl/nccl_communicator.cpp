#include "comm/nccl/nccl_communicator.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/device/check.h"
#include "backend/cuda/device/handles.h"
#include "base/error.h"
#include "comm/nccl/nccl_connection.h"
#include "comm/transport/backoff.h"

namespace ddp {
namespace {

// How long the host polls without sleeping at the end of a step: longer than most steps, because the GPU idles until
// the host notices that its work is done.
constexpr double kEagerWait = 0.05;

// How long the destructor waits for aborted work to end.
constexpr double kDrainSeconds = 10;

// The number of sums between two waits whose completion is tracked individually; further ones count as the last.
constexpr std::size_t kMostMarks = 4096;

// High priority, so that a sum starts when a multiprocessor becomes free rather than when backward is done.
cuda::Owned<cudaStream_t, cudaStreamDestroy> make_urgent_stream() {
  int least = 0;
  int greatest = 0;
  DDP_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream = nullptr;
  DDP_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
  return cuda::Owned<cudaStream_t, cudaStreamDestroy>(stream);
}

cuda::Owned<cudaEvent_t, cudaEventDestroy> make_event() {
  cudaEvent_t event = nullptr;
  DDP_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return cuda::Owned<cudaEvent_t, cudaEventDestroy>(event);
}

bool is_idle(cudaStream_t stream) {
  const cudaError_t state = cudaStreamQuery(stream);
  if (state == cudaErrorNotReady) return false;
  DDP_CUDA(state);
  return true;
}

class NcclCommunicator final : public DeviceCommunicator {
 public:
  NcclCommunicator(Communicator& ranks, const DeviceContext& device)
      : size_(ranks.size()),
        timeout_(ranks.timeout()),
        backend_stream_(static_cast<cudaStream_t>(device.queue().native_stream())),
        stream_(make_urgent_stream()),
        computed_(make_event()),
        summed_(make_event()),
        numbers_(device.memory().allocate(kMostMarks * sizeof(std::uint32_t), "the numbers of NCCL's sums")),
        ended_(
            device.memory().allocate_for_transfer(sizeof(std::uint32_t), "the number of NCCL's sums that have ended")),
        connection_(std::in_place, ranks) {
    std::vector<std::uint32_t> numbers(kMostMarks);
    std::iota(numbers.begin(), numbers.end(), 0U);
    device.queue().upload(numbers_.data(), numbers.data(), numbers_.bytes());
    device.queue().synchronize();
  }

  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  ~NcclCommunicator() override {
    connection_.reset();
    // Copies enqueued after an aborted sum still write to memory that this object owns.
    Backoff backoff(kEagerWait);
    while (cudaStreamQuery(stream_.get()) == cudaErrorNotReady && backoff.waited() < kDrainSeconds) backoff.pause();
  }

  std::string description() const override { return nccl_version(); }
  bool recordable() const override { return true; }
  bool overlaps() const override { return true; }

  void all_reduce(std::span<float* const> partials, std::size_t count, Start /*start*/) override {
    DDP_ASSERT(partials.size() == 1);
    enqueue(partials[0], count, ncclFloat32);
  }
  void all_reduce(Bf16* values, std::size_t count, Start /*start*/) override { enqueue(values, count, ncclBfloat16); }
  void all_reduce(double* values, std::size_t count) override { enqueue(values, count, ncclFloat64); }

  void join() override {
    // Without a new sum there is nothing to wait for, and during stream capture an event from outside the capture would
    // be an error.
    if (!joined_) DDP_CUDA(cudaStreamWaitEvent(backend_stream_, summed_.get()));
    joined_ = true;
  }

  void wait(const std::string& what) override;
  void wait_for(DeviceEvent& event, const std::string& what) override;

 private:
  // The kinds of the sums of the last step, for messages after a failure. Its last sum is a message.
  enum class Kind : char { bucket, message };

  void enqueue(void* values, std::size_t count, ncclDataType_t type);
  bool all_done() const { return is_idle(backend_stream_) && is_idle(stream_.get()); }
  template <class Done>
  void poll(Done done, const std::string& what);
  std::string first_not_ended() const;
  [[noreturn]] void fail(ExitCode code, const std::string& where, const std::string& why);

  int size_;
  double timeout_;
  cudaStream_t backend_stream_;
  cuda::Owned<cudaStream_t, cudaStreamDestroy> stream_;
  cuda::Owned<cudaEvent_t, cudaEventDestroy> computed_;
  cuda::Owned<cudaEvent_t, cudaEventDestroy> summed_;
  Memory numbers_;  // on the device: 0, 1, 2 ...
  Memory ended_;    // on the host: how many sums have ended, see Note [Which sum has not ended]
  std::vector<Kind> sums_;
  bool waited_ = true;  // no sum was enqueued since the last wait: a recording with the same sums is running
  bool joined_ = true;
  std::optional<NcclConnection> connection_;  // always set except in the destructor
};

void NcclCommunicator::enqueue(void* values, std::size_t count, ncclDataType_t type) {
  if (count == 0) return;
  check(!connection_->aborted(), ExitCode::rank_lost, "no sum after an earlier error");
  const Kind kind = type == ncclFloat64 ? Kind::message : Kind::bucket;
  // The steps before may still be running.
  const bool new_step = kind == Kind::bucket && !sums_.empty() && sums_.back() == Kind::message;
  if (waited_ || new_step) sums_.clear();
  waited_ = false;
  joined_ = false;
  const auto note_ended = [this] {
    if (sums_.size() >= kMostMarks) return;
    DDP_CUDA(cudaMemcpyAsync(ended_.data(), numbers_.at<std::uint32_t>(0) + sums_.size(), sizeof(std::uint32_t),
                             cudaMemcpyDeviceToHost, stream_.get()));
  };
  try {
    if (!sums_.empty()) note_ended();
    DDP_CUDA(cudaEventRecord(computed_.get(), backend_stream_));
    DDP_CUDA(cudaStreamWaitEvent(stream_.get(), computed_.get()));
    // The first of a step: during capture the stream takes part in it from here on.
    if (sums_.empty()) note_ended();
    DDP_NCCL_ON(*connection_, ncclAllReduce(values, values, count, type, ncclSum, connection_->get(), stream_.get()));
    DDP_CUDA(cudaEventRecord(summed_.get(), stream_.get()));
  } catch (const Error& error) {
    // NCCL may report an earlier sum.
    const std::string place = sums_.empty() ? "" : "; not known to have ended: " + first_not_ended();
    connection_->abort();
    throw Error(error.code(), error.what() + place);
  }
  sums_.push_back(kind);
}

// Polls until `done`, or until something has failed.
template <class Done>
void NcclCommunicator::poll(Done done, const std::string& what) {
  check(!connection_->aborted(), ExitCode::rank_lost, "no {} after an earlier error", what);
  Backoff backoff(kEagerWait);
  for (;;) {
    if (const ncclResult_t state = connection_->state(); is_failure(state)) {
      fail(ExitCode::rank_lost, what, fmt::format("NCCL: {}", nccl_reason(state)));
    }
    try {
      if (done()) break;
    } catch (const Error& error) {
      fail(error.code(), what, error.what());
    }
    if (backoff.waited() > timeout_) {
      fail(ExitCode::rank_lost, what,
           fmt::format("waited {:g} s for NCCL's sum over {} ranks: a rank hung or died; see its last message, "
                       "or raise --timeout if it was only slow",
                       timeout_, size_));
    }
    backoff.pause();
  }
  waited_ = true;
}

void NcclCommunicator::wait(const std::string& what) {
  poll([this] { return all_done(); }, what);
  *ended_.at<std::uint32_t>(0) = 0;
  joined_ = true;
}

void NcclCommunicator::wait_for(DeviceEvent& event, const std::string& what) {
  poll([&] { return event.reached(); }, what);
}

// "gradient bucket 2 of 5", of the sums since the last wait(); there is at least one.
std::string NcclCommunicator::first_not_ended() const {
  const std::uint32_t ended = std::atomic_ref(*ended_.at<std::uint32_t>(0)).load();
  const auto sum = sums_.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(ended, sums_.size() - 1));
  if (*sum == Kind::message) return "the ranks' message";
  return fmt::format("gradient bucket {} of {}", std::count(sums_.begin(), sum, Kind::bucket) + 1,
                     std::count(sums_.begin(), sums_.end(), Kind::bucket));
}

void NcclCommunicator::fail(ExitCode code, const std::string& where, const std::string& why) {
  const std::string place = sums_.empty() ? where : where + ", " + first_not_ended();
  connection_->abort();
  throw Error(code, place + ": " + why);
}

}  // namespace

std::unique_ptr<DeviceCommunicator> make_nccl_communicator(Communicator& ranks, const DeviceContext& device) {
  return std::make_unique<NcclCommunicator>(ranks, device);
}

}  // namespace ddp
