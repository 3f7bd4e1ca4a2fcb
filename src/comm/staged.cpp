// Sums of device memory through the host's: download, all-reduce by messages, upload.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/arithmetic.h"
#include "comm/device_communicator.h"
#include "comm/reduce.h"

namespace ddp {
namespace {

class StagedCommunicator final : public DeviceCommunicator {
 public:
  StagedCommunicator(Communicator& ranks, Backend& backend) : backend_(backend), channel_(ranks.duplicate()) {}

  std::string description() const override { return "MPI through the host"; }
  bool recordable() const override { return false; }

  void all_reduce(float* values, std::size_t count) override {
    through_host(values, count, [this](std::span<float> staged) { sum(staged); });
  }

  void all_reduce(double* values, std::size_t count) override {
    through_host(values, count, [this](std::span<double> staged) { channel_->all_reduce(staged, ReduceOp::sum); });
  }

  void all_reduce(Bf16* values, std::size_t count) override {
    // The messages carry floats: this way is for tests and for sharing cards, not for speed.
    through_host(values, count, [this](std::span<Bf16> staged) {
      wide_.resize(staged.size());
      for (std::size_t i = 0; i < staged.size(); ++i) wide_[i] = float_of_bf16(staged[i].bits);
      sum(wide_);
      for (std::size_t i = 0; i < staged.size(); ++i) staged[i].bits = bf16_bits(wide_[i]);
    });
  }

  // A sum is done before all_reduce() returns, but for its upload, which later work waits for anyway.
  void join() override {}
  void wait(const std::string& /*what*/) override { backend_.synchronize(); }

 private:
  static constexpr ReductionAlgorithm kAlgorithm = ReductionAlgorithm::ring;

  void sum(std::span<float> values) {
    const std::size_t needed = reduce_scratch_elements(kAlgorithm, values.size(), channel_->size());
    if (scratch_.size() < needed) scratch_.resize(needed);
    all_reduce_sum(*channel_, values, kAlgorithm, scratch_);
  }

  template <class T, class Reduce>
  void through_host(T* values, std::size_t count, Reduce reduce) {
    if (channel_->size() == 1 || count == 0) return;
    const std::size_t bytes = count * sizeof(T);
    reserve(bytes);
    T* const staged = staging_.at<T>(0);
    backend_.download(staged, values, bytes);
    backend_.synchronize();
    reduce(std::span<T>(staged, count));
    // The next download overwrites `staged`, but is enqueued behind this upload.
    backend_.upload(values, staged, bytes);
  }

  // The host memory grows to the largest sum and stays, so that later steps allocate nothing.
  void reserve(std::size_t bytes) {
    if (staging_.bytes() >= bytes) return;
    backend_.synchronize();  // an upload may still read the old memory
    staging_ = backend_.allocate_for_transfer(bytes, "the sums on their way through the host");
  }

  Backend& backend_;
  std::unique_ptr<Communicator> channel_;
  Memory staging_;
  std::vector<float> scratch_;  // of the ring
  std::vector<float> wide_;     // what is in bfloat16 on the device
};

}  // namespace

std::unique_ptr<DeviceCommunicator> make_staged_communicator(Communicator& ranks, Backend& backend) {
  return std::make_unique<StagedCommunicator>(ranks, backend);
}

}  // namespace ddp
