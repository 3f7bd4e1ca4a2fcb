#include "stand_ins/cuda/stream_backend.h"

#include <stdexcept>
#include <utility>

#include "backend/arithmetic.h"
#include "backend/cuda/device/event.h"
#include "stand_ins/cuda/runtime.h"

namespace ddp::testing {
namespace {

[[noreturn]] void no_training() { throw std::logic_error("this backend does not train"); }

class StreamRecording final : public Recording {
 public:
  StreamRecording(cudaGraph_t graph, cudaStream_t stream) : graph_(graph), stream_(stream) {
    cudaGraphExec_t exec = nullptr;
    DDP_CUDA(cudaGraphInstantiate(&exec, graph_.get(), 0));
    exec_ = cuda::GraphExec(exec);
  }
  void replay() override { DDP_CUDA(cudaGraphLaunch(exec_.get(), stream_)); }

 private:
  cuda::Graph graph_;
  cuda::GraphExec exec_;
  cudaStream_t stream_;
};

class StreamMark final : public cuda::StreamEvent {
 public:
  double seconds_since(const DeviceEvent& /*earlier*/) const override { return 0; }
};

}  // namespace

void StreamMath::square_sums(const float* /*values*/, std::size_t /*count*/, double* /*sums*/,
                             const NonfiniteCheck& /*check*/) {
  no_training();
}
void StreamMath::pull(float* /*slow*/, float* /*fast*/, std::size_t /*count*/, float /*rest*/, const double* /*skip*/) {
  no_training();
}
void StreamMath::copy_row(std::span<const TableColumn> /*columns*/, TableCursor* /*cursor*/) { no_training(); }
void StreamMath::update(const UpdateArguments& /*arguments*/) { no_training(); }

Memory StreamMemory::allocate(std::size_t bytes, const std::string& /*purpose*/) {
  void* memory = nullptr;
  DDP_CUDA(cudaMalloc(&memory, bytes + kMemoryAlignment));
  // malloc aligns to 16 bytes, CUDA to 256.
  void* aligned = memory;
  std::size_t space = bytes + kMemoryAlignment;
  std::align(kMemoryAlignment, bytes, aligned, space);
  Memory result(static_cast<std::byte*>(aligned), bytes,
                [memory](std::byte* /*data*/) { static_cast<void>(cudaFree(memory)); });
  DDP_CUDA(cudaMemsetAsync(aligned, 0, bytes, stream_));
  return result;
}

Memory StreamMemory::allocate_for_transfer(std::size_t bytes, const std::string& purpose) {
  return allocate_on_host(bytes, purpose);
}

void StreamQueue::upload(void* device, const void* host, std::size_t bytes) {
  if (bytes > 0) DDP_CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream()));
}
void StreamQueue::download(void* host, const void* device, std::size_t bytes) {
  if (bytes > 0) DDP_CUDA(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream()));
}
void StreamMath::fill_zero(void* device, std::size_t bytes) { DDP_CUDA(cudaMemsetAsync(device, 0, bytes, stream_)); }

void StreamMath::add(Activations sum, ConstActivations addend, std::size_t count) {
  enqueue(stream_, "add", [to = sum.fp32(), from = addend.fp32(), count] {
    for (std::size_t i = 0; i < count; ++i) to[i] += from[i];
  });
}

// What a reducer copies: between fp32 and bf16.
void StreamMath::copy(Activations to, ConstActivations from, std::size_t count, const double* /*skip*/) {
  if (to.element() == from.element()) no_training();
  const bool rounds = to.element() == Element::bf16;
  enqueue(stream_, rounds ? "to_bf16" : "from_bf16", [=] {
    for (std::size_t i = 0; i < count; ++i) {
      if (rounds) {
        to.bf16()[i].bits = bf16_bits(from.fp32()[i]);
      } else {
        to.fp32()[i] = float_of_bf16(from.bf16()[i].bits);
      }
    }
  });
}

std::unique_ptr<DeviceEvent> StreamQueue::make_event() { return std::make_unique<StreamMark>(); }
void StreamQueue::mark(DeviceEvent& event) { DDP_CUDA(cudaEventRecord(cuda::StreamEvent::handle_of(event), stream())); }
void StreamQueue::wait_for(const DeviceEvent& event) {
  DDP_CUDA(cudaStreamWaitEvent(stream(), cuda::StreamEvent::handle_of(event), 0));
}
void StreamQueue::synchronize() { DDP_CUDA(cudaStreamSynchronize(stream())); }

std::unique_ptr<Recording> StreamQueue::record(const std::function<void()>& enqueue) {
  DDP_CUDA(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal));
  enqueue();
  cudaGraph_t graph = nullptr;
  DDP_CUDA(cudaStreamEndCapture(stream(), &graph));
  return std::make_unique<StreamRecording>(graph, stream());
}

std::unique_ptr<Backend> make_stream_backend() {
  auto queue = std::make_unique<StreamQueue>();
  auto memory = std::make_unique<StreamMemory>(queue->stream());
  auto math = std::make_unique<StreamMath>(queue->stream());
  auto device = std::make_unique<DeviceContext>(std::move(memory), std::move(queue), std::make_unique<StreamQueue>());
  return std::make_unique<Backend>(std::move(device), nullptr, std::move(math));
}

}  // namespace ddp::testing
