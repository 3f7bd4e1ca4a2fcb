#include "backend/cuda/cuda_backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include "backend/cuda/candidates/cuda_candidates.h"
#include "backend/cuda/candidates/op_set.h"
#include "backend/cuda/context_ops.h"
#include "backend/cuda/conv/conv.h"
#include "backend/cuda/device/check.h"
#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/device/early_launch.h"
#include "backend/cuda/device/event.h"
#include "backend/cuda/device/handles.h"
#include "backend/cuda/gpu_list.h"
#include "backend/cuda/pointwise/pointwise.h"
#include "backend/cuda/update/update.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text/text.h"

namespace ddp {
namespace cuda {
namespace {

// Selects the GPU with the first CUDA call; the reason of a failure is determined afterwards.
cudaDeviceProp take_gpu(const GpuBackendConfig& config) {
  const cudaError_t taken = cudaSetDevice(config.ordinal);
  if (taken != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    const std::size_t count = visible_gpus().size();
    check(config.ordinal >= 0 && static_cast<std::size_t>(config.ordinal) < count, ExitCode::preflight,
          "there is no GPU {}: {} visible, counted from 0", config.ordinal, count);
    DDP_CUDA(taken);
  }
  cudaDeviceProp properties{};
  DDP_CUDA(cudaGetDeviceProperties(&properties, config.ordinal));
  return properties;
}

// An instantiated CUDA graph.
class CudaRecording final : public Recording {
 public:
  CudaRecording(const Graph& graph, cudaStream_t stream) : stream_(stream) {
    cudaGraphExec_t exec = nullptr;
    // Without the flag the whole graph would run at the priority of `stream`, and sums of gradients would wait for
    // kernels.
    DDP_CUDA(cudaGraphInstantiate(&exec, graph.get(), cudaGraphInstantiateFlagUseNodePriority));
    exec_ = GraphExec(exec);
    DDP_CUDA(cudaGraphUpload(exec, stream));
  }
  void replay() override { DDP_CUDA(cudaGraphLaunch(exec_.get(), stream_)); }

 private:
  GraphExec exec_;
  cudaStream_t stream_;
};

class CudaMemory final : public DeviceMemory {
 public:
  // For the GPU in use; blocks are zeroed on the stream.
  CudaMemory(const GpuBackendConfig& config, cudaStream_t stream)
      : process_bytes_(config.process_bytes),
        budget_(std::make_shared<MemoryBudget>(total_bytes(), config.memory_fraction, config.memory_limit)),
        stream_(stream) {}

  // Called after the libraries have allocated their memory. A build without code for this GPU fails here, before any
  // data is read.
  void measure(const cudaDeviceProp& gpu) {
    budget_->set_reserve(0);  // until it can be measured
    const Memory probe = allocate(sizeof(float), "the first floats");
    fill_random(stream_, Element::fp32, probe.data(), 1, 0);
    DDP_CUDA(cudaStreamSynchronize(stream_));
    let_kernels_start_early(gpu);
    measure_reserve();
  }

  bool on_host() const override { return false; }
  Memory allocate(std::size_t bytes, const std::string& purpose) override {
    if (bytes == 0) return {};
    budget_->take(bytes, purpose);
    void* data = nullptr;
    const cudaError_t code = cudaMalloc(&data, bytes);
    if (code != cudaSuccess) {
      budget_->give_back(bytes);
      static_cast<void>(cudaGetLastError());
      if (code == cudaErrorMemoryAllocation) budget_->refused_by_gpu(bytes, purpose, free_bytes());
      DDP_CUDA(code);
    }
    Memory memory(static_cast<std::byte*>(data), bytes, [budget = budget_, bytes](std::byte* device) {
      static_cast<void>(cudaFree(device));
      budget->give_back(bytes);
    });
    DDP_CUDA(cudaMemsetAsync(data, 0, bytes, stream_));
    DDP_CUDA(cudaStreamSynchronize(stream_));
    return memory;
  }

  Memory allocate_for_transfer(std::size_t bytes, const std::string& purpose) override {
    if (bytes == 0) return {};
    void* data = nullptr;
    const cudaError_t code = cudaHostAlloc(&data, bytes, cudaHostAllocDefault);
    if (code == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      throw Error(ExitCode::out_of_memory,
                  fmt::format("{} need {} of page-locked host memory but this machine cannot provide that much; use a "
                              "smaller batch or more logical shards",
                              purpose, format_bytes(bytes)));
    }
    DDP_CUDA(code);
    std::memset(data, 0, bytes);
    return {static_cast<std::byte*>(data), bytes, [](std::byte* host) { static_cast<void>(cudaFreeHost(host)); }};
  }

  std::size_t available_bytes() const override {
    measure_reserve();
    return std::min(budget_->left(), free_bytes());
  }

 private:
  // Compute capability 9.0 has it; DDP_EARLY_KERNELS=off leaves it out.
  void let_kernels_start_early(const cudaDeviceProp& gpu) {
    const char* wanted = std::getenv("DDP_EARLY_KERNELS");
    if (gpu.major < 9 || (wanted != nullptr && std::string_view(wanted) == "off")) return;
    const Memory memory = allocate(kEarlyLaunchBytes, "a trial of kernels");
    const std::string failure = try_early_launch(stream_, memory.data());
    if (failure.empty()) return;
    log_warning("kernels do not start early on this GPU ({}); steps of many small kernels take a little longer",
                failure);
  }
  static std::size_t total_bytes() {
    std::size_t free = 0;
    std::size_t total = 0;
    DDP_CUDA(cudaMemGetInfo(&free, &total));
    return total;
  }
  static std::size_t free_bytes() {
    std::size_t free = 0;
    std::size_t total = 0;
    DDP_CUDA(cudaMemGetInfo(&free, &total));
    return free;
  }
  // Measured again: more code has been loaded since the start, and NCCL has allocated its buffers.
  void measure_reserve() const {
    if (!budget_->capped()) return;
    const std::optional<std::size_t> counted = process_bytes_ ? process_bytes_() : std::nullopt;
    budget_->set_reserve(runtime_reserve(counted, total_bytes() - free_bytes(), budget_->held()));
  }

  std::function<std::optional<std::size_t>()> process_bytes_;
  std::shared_ptr<MemoryBudget> budget_;
  cudaStream_t stream_;
};

class CudaEvent final : public StreamEvent {
 public:
  double seconds_since(const DeviceEvent& earlier) const override {
    float milliseconds = 0;
    DDP_CUDA(cudaEventElapsedTime(&milliseconds, handle_of(earlier), handle_of(*this)));
    return static_cast<double>(milliseconds) / 1000;
  }
};

class CudaQueue final : public DeviceQueue {
 public:
  cudaStream_t stream() const { return stream_.get(); }

  void upload(void* device, const void* host, std::size_t bytes) override {
    copy(device, host, bytes, cudaMemcpyHostToDevice);
  }
  void download(void* host, const void* device, std::size_t bytes) override {
    copy(host, device, bytes, cudaMemcpyDeviceToHost);
  }
  std::unique_ptr<DeviceEvent> make_event() override { return std::make_unique<CudaEvent>(); }
  void mark(DeviceEvent& event) override {
    // During capture the event must be external, so that its time can be queried.
    const unsigned flags = recording_ ? cudaEventRecordExternal : cudaEventRecordDefault;
    DDP_CUDA(cudaEventRecordWithFlags(CudaEvent::handle_of(event), stream_.get(), flags));
  }
  void wait_for(const DeviceEvent& event) override {
    DDP_ASSERT(!recording_);
    DDP_CUDA(cudaStreamWaitEvent(stream_.get(), CudaEvent::handle_of(event)));
  }
  void synchronize() override { DDP_CUDA(cudaStreamSynchronize(stream_.get())); }

  // Other threads may use CUDA meanwhile, and libraries may load code, so the capture mode is the most permissive.
  std::unique_ptr<Recording> record(const std::function<void()>& enqueue) override {
    DDP_ASSERT(!recording_);
    DDP_CUDA(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeRelaxed));
    recording_ = true;
    std::exception_ptr failure;
    try {
      enqueue();
    } catch (...) {
      failure = std::current_exception();
    }
    recording_ = false;
    cudaGraph_t captured = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_.get(), &captured);
    const Graph graph(captured);
    if (failure) {
      static_cast<void>(cudaGetLastError());
      std::rethrow_exception(failure);
    }
    DDP_CUDA(ended);
    return std::make_unique<CudaRecording>(graph, stream_.get());
  }

  void* native_stream() override { return stream_.get(); }

 private:
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    if (bytes > 0) DDP_CUDA(cudaMemcpyAsync(to, from, bytes, kind, stream_.get()));
  }

  Stream stream_;
  bool recording_ = false;
};

cudaStream_t stream_of(const DeviceContext& device) {
  return static_cast<cudaStream_t>(device.queue().native_stream());
}

BackendTraits cuda_traits(const cudaDeviceProp& gpu, const CudaContext& context) {
  int runtime = 0;
  DDP_CUDA(cudaRuntimeGetVersion(&runtime));
  const std::string_view precision = name_of(context.precision);
  return {.description = fmt::format("{}, {}, CUDA {}, cuDNN {}", gpu.name, precision, cuda_version_text(runtime),
                                     cudnn_version_text()),
          .fingerprint = fmt::format("cuda {} sm{}{} {} multiprocessors {}{} cuda-{} cudnn-{} cublaslt-{} kernels-{}",
                                     gpu.name, gpu.major, gpu.minor, gpu.multiProcessorCount, precision,
                                     context.deterministic ? " deterministic" : "", runtime, cudnnGetVersion(),
                                     cublasLtGetVersion(), cuda_source_hash()),
          .arithmetic = fmt::format("kernels for sm_{}{}, CUDA {}, cuDNN {} and cuBLASLt {}", gpu.major, gpu.minor,
                                    runtime, cudnnGetVersion(), cublasLtGetVersion()),
          .activation_element = context.element(),
          .takes_bias_into_norm = true};
}

class CudaOps final : public ContextOps {
 public:
  CudaOps(const DeviceContext& device, const cudaDeviceProp& gpu, const GpuBackendConfig& config)
      : ContextOps(context_),
        cudnn_(stream_of(device)),
        context_{.stream = stream_of(device),
                 .cudnn = cudnn_.get(),
                 .cublas = cublas_.get(),
                 .precision = config.precision,
                 .deterministic = config.deterministic,
                 .cache_bytes = static_cast<std::size_t>(gpu.l2CacheSize),
                 .shared_bytes = gpu.sharedMemPerBlockOptin},
        traits_(cuda_traits(gpu, context_)),
        candidates_(device, context_) {}

  const BackendTraits& traits() const override { return traits_; }
  KernelChooser& chooser() override { return chooser_; }

 private:
  CudnnHandle cudnn_;
  CublasLtHandle cublas_;
  CudaContext context_;
  BackendTraits traits_;
  CudaCandidates candidates_;
  KernelChooser chooser_{*this, candidates_};
};

class CudaMath final : public FlatMath {
 public:
  CudaMath(const DeviceContext& device, Precision precision)
      : stream_(stream_of(device)), element_(element_of(precision)) {}

  void fill_zero(void* device, std::size_t bytes) override {
    if (bytes > 0) DDP_CUDA(cudaMemsetAsync(device, 0, bytes, stream_));
  }

  // Activations are aligned to vectors; gradients may begin at any float.
  void add(Activations sum, ConstActivations addend, std::size_t count) override {
    DDP_ASSERT(sum.element() == addend.element());
    if (sum.element() == Element::fp32 && !(is_aligned(sum.data()) && is_aligned(addend.data()))) {
      cuda::add(stream_, sum.fp32(), addend.fp32(), count);
    } else {
      cuda::add_activations(stream_, sum.element(), Activation::none, sum.data(), addend.data(), sum.data(),
                            static_cast<std::int64_t>(count));
    }
  }
  void copy(Activations to, ConstActivations from, std::size_t count, const double* skip) override {
    if (to.element() == Element::fp32 && from.element() == Element::fp32) {
      cuda::copy(stream_, to.fp32(), from.fp32(), count, skip);
      return;
    }
    DDP_ASSERT(skip == nullptr);
    cuda::convert(stream_, from.element(), from.data(), to.element(), to.data(), static_cast<std::int64_t>(count));
  }
  void square_sums(const float* values, std::size_t count, double* sums, const NonfiniteCheck& check) override {
    if (sums != nullptr) {
      cuda::square_sums(stream_, values, count, sums, check);
    } else if (check.broken != nullptr) {
      cuda::find_nonfinite(stream_, check.sums, check.broken);
    }
  }
  void pull(float* slow, float* fast, std::size_t count, float rest, const double* skip) override {
    cuda::pull(stream_, slow, fast, count, rest, skip);
  }
  void copy_row(std::span<const TableColumn> columns, TableCursor* cursor) override {
    DDP_ASSERT(columns.size() <= kMostColumns);
    cuda::copy_row(stream_, columns, cursor);
  }
  void convert_weights(std::span<const WeightPacking> all, PackingDirection direction) override {
    if (direction == PackingDirection::pack) {
      cuda::pack_weights(stream_, element_, all);
    } else {
      cuda::unpack_weights(stream_, element_, all);
    }
  }
  void update(const UpdateArguments& arguments) override { cuda::update(stream_, arguments); }

 private:
  cudaStream_t stream_;
  Element element_;  // of activations
};

}  // namespace
}  // namespace cuda

std::unique_ptr<Backend> make_cuda_backend(const GpuBackendConfig& config) {
  const cudaDeviceProp gpu = cuda::take_gpu(config);  // before anything else is created
  auto queue = std::make_unique<cuda::CudaQueue>();
  auto owned_memory = std::make_unique<cuda::CudaMemory>(config, queue->stream());
  cuda::CudaMemory& memory = *owned_memory;
  auto device =
      std::make_unique<DeviceContext>(std::move(owned_memory), std::move(queue), std::make_unique<cuda::CudaQueue>());
  auto ops = std::make_unique<cuda::CudaOps>(*device, gpu, config);
  auto math = std::make_unique<cuda::CudaMath>(*device, config.precision);
  memory.measure(gpu);
  return std::make_unique<Backend>(std::move(device), std::move(ops), std::move(math));
}

}  // namespace ddp
