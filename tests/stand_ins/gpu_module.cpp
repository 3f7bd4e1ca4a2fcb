// A stand-in for libddp_cuda.so whose GPUs are the CPU, to test without a GPU which rank uses which GPU and which
// transport sums the gradients. The program must treat its memory as device memory.
//
//   STAND_IN_GPUS         the PCI addresses of the visible GPUs, separated by spaces; unset or empty: no driver
//   STAND_IN_GPU_FAULT    product: operators compute wrong values; sum: sums between GPUs are wrong; memory: it is full;
//                         trace: kernels cannot be traced

#include "comm/gpu_module.h"

#include <cstdlib>
#include <cstring>
#include <span>
#include <sstream>

#include "backend/host_queue.h"
#include "base/clock.h"
#include "base/error.h"
#include "stand_ins/ops_in_front.h"

namespace ddp {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}
bool fault_is(const char* fault) { return variable("STAND_IN_GPU_FAULT") == fault; }

class WrongOp final : public Op {
 public:
  explicit WrongOp(std::unique_ptr<Op> op) : op_(std::move(op)) {}
  OpTraits traits() const override { return op_->traits(); }
  void forward(const ForwardArguments& arguments) override {
    op_->forward(arguments);
    arguments.y.fp32()[0] += 1;
  }
  void backward(const BackwardArguments& arguments) override { op_->backward(arguments); }

 private:
  std::unique_ptr<Op> op_;
};

class StandInMemory final : public HostMemory {
 public:
  StandInMemory(const GpuInfo& gpu, std::size_t limit) : left_(limit == 0 ? gpu.total_bytes : limit) {}

  bool on_host() const override { return false; }
  std::size_t available_bytes() const override { return left_; }
  Memory allocate(std::size_t bytes, const std::string& purpose) override {
    check(!fault_is("memory") && bytes <= left_, ExitCode::out_of_memory, "{} do not fit", purpose);
    left_ -= bytes;
    return HostMemory::allocate(bytes, purpose);
  }

 private:
  std::size_t left_;  // bytes; freed memory is not reused
};

class StandInOps final : public OpsInFront {
 public:
  StandInOps(const GpuInfo& gpu, Precision precision) : OpsInFront(make_cpu_ops(precision)) {
    describe_as(gpu.name + " at " + gpu.pci_id);
  }

  std::unique_ptr<Op> make_op(const OpSpec& spec, Layout x, Layout y, const std::string& kernels) override {
    std::unique_ptr<Op> op = behind().make_op(spec, x, y, kernels);
    return fault_is("product") ? std::make_unique<WrongOp>(std::move(op)) : std::move(op);
  }
};

// Has NCCL's interface, but sums by messages between the ranks.
class StandInNccl final : public DeviceCommunicator {
 public:
  explicit StandInNccl(std::unique_ptr<DeviceCommunicator> sums) : sums_(std::move(sums)) {}
  std::string description() const override { return "a stand-in for NCCL"; }
  bool recordable() const override { return false; }
  bool overlaps() const override { return false; }
  void all_reduce(std::span<float* const> partials, std::size_t count, Start start) override {
    sums_->all_reduce(partials, count, start);
    if (fault_is("sum")) wrong_ = partials[0] + count / 2;
  }
  void all_reduce(Bf16* values, std::size_t count, Start start) override { sums_->all_reduce(values, count, start); }
  void all_reduce(double* values, std::size_t count) override { sums_->all_reduce(values, count); }
  void join() override {
    sums_->join();
    if (wrong_ != nullptr) *wrong_ += 1;
    wrong_ = nullptr;
  }
  void wait(const std::string& what) override { sums_->wait(what); }
  void wait_for(DeviceEvent& event, const std::string& what) override { sums_->wait_for(event, what); }

 private:
  std::unique_ptr<DeviceCommunicator> sums_;
  float* wrong_ = nullptr;
};

// Kernels of 1 ms each on two streams in turn, from the begin of the trace to its end.
class StandInTrace final : public GpuTrace {
 public:
  std::vector<GpuSpan> finish() override {
    std::vector<GpuSpan> spans;
    const double end = now();
    for (double begin = begin_; begin < end; begin += kKernel) {
      const auto stream = static_cast<std::uint32_t>(spans.size() % 2);
      spans.push_back({"stand_in_kernel", 7 + stream, begin, begin + kKernel});
    }
    return spans;
  }

 private:
  static constexpr double kKernel = 1e-3;
  double begin_ = now();
};

class StandInModule final : public GpuModule {
 public:
  std::string versions() const override { return "a stand-in"; }
  std::vector<GpuInfo> visible() override {
    std::istringstream addresses(variable("STAND_IN_GPUS"));
    std::vector<GpuInfo> gpus;
    for (std::string address; addresses >> address;) {
      gpus.push_back({.ordinal = static_cast<int>(gpus.size()),
                      .name = "Stand-in",
                      .pci_id = address,
                      .numa_node = 0,
                      .major = 9,
                      .minor = 0,
                      .total_bytes = std::size_t{8} << 30U});
    }
    check(!gpus.empty(), ExitCode::preflight, "there is no NVIDIA driver");
    return gpus;
  }
  std::unique_ptr<Backend> make_backend(const GpuBackendConfig& config) override {
    const GpuInfo gpu = visible().at(static_cast<std::size_t>(config.ordinal));
    return std::make_unique<Backend>(make_host_device(std::make_unique<StandInMemory>(gpu, config.memory_limit)),
                                     std::make_unique<StandInOps>(gpu, config.precision), make_cpu_math());
  }
  std::unique_ptr<Backend> make_described_backend(const GpuDescription& gpu, const GpuBackendConfig& config) override {
    const GpuInfo described{.name = gpu.name, .pci_id = "nowhere", .total_bytes = gpu.total_bytes};
    return std::make_unique<Backend>(make_host_device(std::make_unique<StandInMemory>(described, config.memory_limit)),
                                     std::make_unique<StandInOps>(described, config.precision), nullptr);
  }
  std::unique_ptr<DeviceCommunicator> make_nccl_communicator(Communicator& ranks,
                                                             const DeviceContext& device) override {
    return std::make_unique<StandInNccl>(make_staged_communicator(ranks, device));
  }
  std::unique_ptr<GpuTrace> start_trace() override {
    check(!fault_is("trace"), ExitCode::preflight, "CUPTI cannot be loaded");
    return std::make_unique<StandInTrace>();
  }
};

}  // namespace

extern "C" [[gnu::visibility("default")]] GpuModule* ddp_open_gpu_module(const char* program_version) {
  return std::strcmp(program_version, DDP_VERSION) == 0 ? std::make_unique<StandInModule>().release() : nullptr;
}

}  // namespace ddp
