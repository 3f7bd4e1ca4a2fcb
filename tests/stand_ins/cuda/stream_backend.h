// A backend on a stream of the CUDA stand-in: memory, copies, sums and recordings, but no operators.
//
//   const std::unique_ptr<Backend> backend = make_stream_backend();
//   const auto sums = make_nccl_communicator(ranks, backend->device());
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/cuda/device/handles.h"

namespace ddp::testing {

class StreamMemory final : public DeviceMemory {
 public:
  explicit StreamMemory(cudaStream_t stream) : stream_(stream) {}
  bool on_host() const override { return false; }
  Memory allocate(std::size_t bytes, const std::string& purpose) override;
  Memory allocate_for_transfer(std::size_t bytes, const std::string& purpose) override;

 private:
  cudaStream_t stream_;
};

class StreamQueue final : public DeviceQueue {
 public:
  void upload(void* device, const void* host, std::size_t bytes) override;
  void download(void* host, const void* device, std::size_t bytes) override;
  std::unique_ptr<DeviceEvent> make_event() override;
  void mark(DeviceEvent& event) override;
  void wait_for(const DeviceEvent& event) override;
  void synchronize() override;
  std::unique_ptr<Recording> record(const std::function<void()>& enqueue) override;
  void* native_stream() override { return stream_.get(); }
  cudaStream_t stream() const { return stream_.get(); }

 private:
  cuda::Stream stream_;
};

// The arithmetic that a reducer needs.
class StreamMath final : public FlatMath {
 public:
  explicit StreamMath(cudaStream_t stream) : stream_(stream) {}

  void fill_zero(void* device, std::size_t bytes) override;
  void add(Activations sum, ConstActivations addend, std::size_t count) override;
  void copy(Activations to, ConstActivations from, std::size_t count, const double* skip) override;
  void square_sums(const float* values, std::size_t count, double* sums, const NonfiniteCheck& check) override;
  void pull(float* slow, float* fast, std::size_t count, float rest, const double* skip) override;
  void copy_row(std::span<const TableColumn> columns, TableCursor* cursor) override;
  void update(const UpdateArguments& arguments) override;

 private:
  cudaStream_t stream_;
};

std::unique_ptr<Backend> make_stream_backend();

}  // namespace ddp::testing
