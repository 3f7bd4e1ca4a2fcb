// Sums of device memory staged through host memory: download, sum by messages, upload.
#include <memory>
#include <span>
#include <string>

#include "base/error.h"
#include "base/status/position.h"
#include "comm/sums/device_communicator.h"
#include "comm/sums/message_sums.h"

namespace ddp {
namespace {

class StagedCommunicator final : public MessageCommunicator {
 public:
  StagedCommunicator(Communicator& ranks, const DeviceContext& device, const SumOrder& order)
      : MessageCommunicator(ranks, device, order), memory_(device.memory()) {
    sums_.set_eager_seconds(kEagerInJoin);
  }

  std::string description() const override { return "MPI through the host"; }
  bool overlaps() const override { return false; }

  void all_reduce(std::span<float* const> partials, std::size_t count, Start start) override {
    DDP_ASSERT(partials.size() == sums_.partials());
    if (sums_.ranks() > 1) pending_.add(partials, count, start);
  }
  void all_reduce(Bf16* values, std::size_t count, Start start) override {
    if (sums_.ranks() > 1) pending_.add(values, count, start);
  }
  void all_reduce(double* values, std::size_t count) override;
  void join() override;

 private:
  void make(const PendingSums::Sum& sum) override;
  void add_floats(std::span<float* const> partials, std::size_t count);
  template <class T>
  void add_values(T* values, std::size_t count);
  void reserve(std::size_t bytes);

  DeviceMemory& memory_;
  Memory staging_;
  std::vector<float*> staged_partials_;
};

void StagedCommunicator::join() {
  make_from(0);
  note_bucket(0);
  pending_.clear();
}

void StagedCommunicator::all_reduce(double* values, std::size_t count) {
  join();
  add_values(values, count);
}

void StagedCommunicator::make(const PendingSums::Sum& sum) {
  if (sum.rounded != nullptr) {
    add_values(sum.rounded, sum.count);
  } else {
    add_floats(sum.partials, sum.count);
  }
}

void StagedCommunicator::add_floats(std::span<float* const> partials, std::size_t count) {
  if (count == 0) return;
  const std::size_t bytes = count * sizeof(float);
  reserve(aligned_bytes(bytes) * partials.size());
  staged_partials_.clear();
  for (std::size_t k = 0; k < partials.size(); ++k) {
    staged_partials_.push_back(staging_.at<float>(k * aligned_bytes(bytes)));
    queue_.download(staged_partials_[k], partials[k], bytes);
  }
  queue_.synchronize();
  sums_.add(staged_partials_, count);
  // The next download overwrites this memory, but it is enqueued after this upload.
  queue_.upload(partials[0], staged_partials_[0], bytes);
}

template <class T>
void StagedCommunicator::add_values(T* values, std::size_t count) {
  if (sums_.ranks() == 1 || count == 0) return;
  const std::size_t bytes = count * sizeof(T);
  reserve(bytes);
  T* const staged = staging_.at<T>(0);
  queue_.download(staged, values, bytes);
  queue_.synchronize();
  sums_.add(std::span<T>(staged, count));
  queue_.upload(values, staged, bytes);
}

// The host memory grows to the largest sum and is kept, so that later steps allocate nothing.
void StagedCommunicator::reserve(std::size_t bytes) {
  if (staging_.bytes() >= bytes) return;
  queue_.synchronize();  // an upload may still read the old memory
  staging_ = memory_.allocate_for_transfer(bytes, "the staging of sums in host memory");
}

}  // namespace

std::unique_ptr<DeviceCommunicator> make_staged_communicator(Communicator& ranks, const DeviceContext& device,
                                                             const SumOrder& order) {
  return std::make_unique<StagedCommunicator>(ranks, device, order);
}

std::unique_ptr<DeviceCommunicator> make_message_communicator(Communicator& ranks, const DeviceContext& device,
                                                              const SumOrder& order) {
  return device.memory().on_host() ? make_host_communicator(ranks, device, order)
                                   : make_staged_communicator(ranks, device, order);
}

}  // namespace ddp
