#include "backend/cuda/described_gpu.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "backend/cuda/candidates/cuda_candidates.h"
#include "backend/cuda/candidates/op_set.h"
#include "backend/cuda/context_ops.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/check.h"
#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/gpu_list.h"
#include "backend/host_queue.h"
#include "base/error.h"

namespace ddp {
namespace cuda {
namespace {

constexpr std::size_t kFirstDescribingCudnn = 90800;

// One word of CUDA_ARCHITECTURES.
struct Architecture {
  int number = 0;       // 90: compute capability 9.0; 0: a word such as "native"
  bool machine = true;  // has machine code
  bool ptx = true;      // has PTX, which later GPUs compile
  bool exact = false;   // "90a" runs on nothing else
};

Architecture architecture_of(std::string_view word) {
  Architecture found;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), found.number);
  if (error != std::errc()) return {};
  const std::string_view rest = word.substr(static_cast<std::size_t>(end - word.data()));
  found.exact = rest.starts_with('a');
  found.machine = !rest.ends_with("-virtual");
  found.ptx = !rest.ends_with("-real") && !found.exact;
  return found;
}

// What the GPU has left for this process: its memory without that of CUDA, its libraries and NCCL.
std::size_t usable_bytes(const GpuDescription& gpu, const GpuBackendConfig& config) {
  const MemoryBudget budget(gpu.total_bytes, config.memory_fraction, config.memory_limit);
  return std::min(budget.cap(), gpu.total_bytes - std::min(gpu.total_bytes, kRuntimeReserve));
}

// There is no memory behind it.
class DescribedMemory final : public HostMemory {
 public:
  explicit DescribedMemory(std::size_t bytes) : bytes_(bytes) {}
  bool on_host() const override { return false; }
  std::size_t available_bytes() const override { return bytes_; }
  Memory allocate(std::size_t /*bytes*/, const std::string& purpose) override { return refuse(purpose); }
  Memory allocate_for_transfer(std::size_t /*bytes*/, const std::string& purpose) override { return refuse(purpose); }

 private:
  static Memory refuse(const std::string& purpose) {
    throw Error(ExitCode::internal, fmt::format("{} were to lie on a GPU that is only described", purpose));
  }

  std::size_t bytes_;
};

Descriptor checked_description(const GpuDescription& gpu) {
  check_can_describe(cudnnGetVersion());
  check_has_kernels(DDP_CUDA_ARCHITECTURES, gpu.name, gpu.major, gpu.minor);
  try {
    return describe_gpu(gpu.json);
  } catch (const Error& error) {
    throw Error(ExitCode::usage, fmt::format("cuDNN {} does not take the description of {}: {}", cudnn_version_text(),
                                             gpu.name, error.what()));
  }
}

BackendTraits described_traits(const GpuDescription& gpu, const CudaContext& context) {
  const std::string_view precision = name_of(context.precision);
  const std::string fingerprint =
      fmt::format("described cuda {} sm{}{} {} multiprocessors {}{} cudnn-{}", gpu.name, gpu.major, gpu.minor,
                  gpu.multiprocessors, precision, context.deterministic ? " deterministic" : "", cudnnGetVersion());
  return {.description = fmt::format("{} as described, {}, cuDNN {}", gpu.name, precision, cudnn_version_text()),
          .fingerprint = fingerprint,
          .arithmetic = fingerprint,
          .activation_element = context.element(),
          .takes_bias_into_norm = true};
}

class DescribedOps final : public ContextOps {
 public:
  DescribedOps(const GpuDescription& gpu, const GpuBackendConfig& config)
      : ContextOps(context_),
        described_(checked_description(gpu)),
        context_{.precision = config.precision,
                 .deterministic = config.deterministic,
                 .described = &described_,
                 .shared_bytes = gpu.shared_bytes},
        traits_(described_traits(gpu, context_)) {}

  const BackendTraits& traits() const override { return traits_; }
  KernelChooser& chooser() override { return chooser_; }

 private:
  Descriptor described_;
  CudaContext context_;
  BackendTraits traits_;
  DescribedCandidates candidates_{context_};
  KernelChooser chooser_{*this, candidates_};
};

}  // namespace

void check_can_describe(std::size_t cudnn_version) {
  check(cudnn_version >= kFirstDescribingCudnn, ExitCode::preflight,
        "cuDNN {}.{}.{} plans for GPUs of this machine only; planning for one that is described requires cuDNN 9.8 or "
        "later",
        cudnn_version / 10000, cudnn_version % 10000 / 100, cudnn_version % 100);
}

bool runs_on(std::string_view architectures, int major, int minor) {
  const int wanted = 10 * major + minor;
  while (!architectures.empty()) {
    const std::size_t comma = std::min(architectures.find(','), architectures.size());
    const Architecture has = architecture_of(architectures.substr(0, comma));
    architectures.remove_prefix(std::min(comma + 1, architectures.size()));
    if (has.number == 0 || has.number == wanted) return true;
    if (has.exact || has.number > wanted) continue;
    if (has.ptx || (has.machine && has.number / 10 == major)) return true;
  }
  return false;
}

void check_has_kernels(std::string_view architectures, const std::string& gpu, int major, int minor) {
  check(runs_on(architectures, major, minor), ExitCode::preflight,
        "{} has compute capability {}.{}, and this program was compiled for {} (DDP_CUDA_ARCHITECTURES); describe "
        "another "
        "GPU, or compile for this one if its CUDA still supports it",
        gpu, major, minor, architectures);
}

}  // namespace cuda

std::unique_ptr<Backend> make_described_cuda_backend(const GpuDescription& gpu, const GpuBackendConfig& config) {
  auto ops = std::make_unique<cuda::DescribedOps>(gpu, config);
  auto memory = std::make_unique<cuda::DescribedMemory>(cuda::usable_bytes(gpu, config));
  return std::make_unique<Backend>(make_host_device(std::move(memory)), std::move(ops), nullptr);
}

}  // namespace ddp
