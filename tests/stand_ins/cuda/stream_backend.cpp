#include "stand_ins/cuda/stream_backend.h"

#include <stdexcept>

#include "backend/arithmetic.h"
#include "stand_ins/cuda/runtime.h"

namespace ddp::testing {
namespace {

[[noreturn]] void no_operators() { throw std::logic_error("this backend has no operators"); }

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

}  // namespace

KernelChoice StreamBackend::choose(const OpSpec& /*spec*/, Layout /*x*/, Layout /*y*/, ChoiceMode /*mode*/) {
  no_operators();
}
std::unique_ptr<Op> StreamBackend::make_op(const OpSpec& /*spec*/, Layout /*x*/, Layout /*y*/,
                                           const std::string& /*kernels*/) {
  no_operators();
}
void StreamBackend::load_input(const InputSpec& /*spec*/, const InputArguments& /*arguments*/) { no_operators(); }
void StreamBackend::softmax_cross_entropy(const LossSpec& /*spec*/, const LossArguments& /*arguments*/) {
  no_operators();
}
void StreamBackend::find_broken(const float* /*values*/, std::size_t /*count*/, const double* /*sums*/,
                                std::size_t /*sum_count*/, double* /*broken*/) {
  no_operators();
}
void StreamBackend::update(const UpdateArguments& /*arguments*/) { no_operators(); }

Memory StreamBackend::allocate(std::size_t bytes, const std::string& /*purpose*/) {
  void* memory = nullptr;
  DDP_CUDA(cudaMalloc(&memory, bytes + kMemoryAlignment));
  // malloc gives 16-byte boundaries, CUDA 256.
  void* aligned = memory;
  std::size_t space = bytes + kMemoryAlignment;
  std::align(kMemoryAlignment, bytes, aligned, space);
  Memory result(static_cast<std::byte*>(aligned), bytes,
                [memory](std::byte* /*data*/) { static_cast<void>(cudaFree(memory)); });
  fill_zero(aligned, bytes);
  return result;
}

Memory StreamBackend::allocate_for_transfer(std::size_t bytes, const std::string& purpose) {
  return allocate_on_host(bytes, purpose);
}

void StreamBackend::upload(void* device, const void* host, std::size_t bytes) {
  if (bytes > 0) DDP_CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream()));
}
void StreamBackend::download(void* host, const void* device, std::size_t bytes) {
  if (bytes > 0) DDP_CUDA(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream()));
}
void StreamBackend::fill_zero(void* device, std::size_t bytes) {
  DDP_CUDA(cudaMemsetAsync(device, 0, bytes, stream()));
}

void StreamBackend::add(float* sum, const float* addend, std::size_t count) {
  enqueue(stream(), "add", [=] {
    for (std::size_t i = 0; i < count; ++i) sum[i] += addend[i];
  });
}

void StreamBackend::to_bf16(Bf16* to, const float* from, std::size_t count) {
  enqueue(stream(), "to_bf16", [=] {
    for (std::size_t i = 0; i < count; ++i) to[i].bits = bf16_bits(from[i]);
  });
}

void StreamBackend::from_bf16(float* to, const Bf16* from, std::size_t count) {
  enqueue(stream(), "from_bf16", [=] {
    for (std::size_t i = 0; i < count; ++i) to[i] = float_of_bf16(from[i].bits);
  });
}

void StreamBackend::synchronize() { DDP_CUDA(cudaStreamSynchronize(stream())); }

std::unique_ptr<Recording> StreamBackend::record(const std::function<void()>& enqueue) {
  DDP_CUDA(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal));
  enqueue();
  cudaGraph_t graph = nullptr;
  DDP_CUDA(cudaStreamEndCapture(stream(), &graph));
  return std::make_unique<StreamRecording>(graph, stream());
}

}  // namespace ddp::testing
