#include "backend/cuda/gpu_list.h"

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/check.h"
#include "base/error.h"

namespace ddp {
namespace cuda {
namespace {

GpuSearch search_gpus() {
  GpuSearch search;
  DDP_CUDA(cudaRuntimeGetVersion(&search.runtime_version));
  // Without a driver this succeeds and returns 0.
  if (cudaDriverGetVersion(&search.driver_version) != cudaSuccess) search.driver_version = 0;
  int count = 0;
  search.result = cudaGetDeviceCount(&count);
  if (search.result == cudaSuccess) {
    search.count = count;
  } else {
    static_cast<void>(cudaGetLastError());
  }
  if (const char* list = std::getenv("CUDA_VISIBLE_DEVICES"); list != nullptr) search.visible_list = list;
  return search;
}

std::string pci_id_of(int ordinal) {
  std::array<char, 32> id{};
  DDP_CUDA(cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()) - 1, ordinal));
  std::string text = id.data();
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  return text;
}

// The NUMA node of a GPU according to Linux; -1: unknown.
int numa_node_of(const std::string& pci_id) {
  std::ifstream file("/sys/bus/pci/devices/" + pci_id + "/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

}  // namespace

std::string cuda_version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string why_no_gpu(const GpuSearch& search) {
  if (search.result == cudaSuccess && search.count > 0) return "";
  const std::string needed = cuda_version_text(search.runtime_version);
  const std::string had = cuda_version_text(search.driver_version);
  switch (search.result) {
    case cudaErrorInsufficientDriver:
      if (search.driver_version == 0) return "no NVIDIA driver is installed, or it is not loaded";
      return fmt::format("the NVIDIA driver is too old: it supports CUDA {}, this build needs CUDA {}", had, needed);
    case cudaSuccess:
    case cudaErrorNoDevice:
      if (search.visible_list.has_value()) {
        return fmt::format("no GPU is visible: CUDA_VISIBLE_DEVICES is '{}'", *search.visible_list);
      }
      if (search.driver_version == 0) return "no NVIDIA driver is installed, or it is not loaded";
      return "the NVIDIA driver sees no GPU";
    default:
      return fmt::format("CUDA {} with a driver for CUDA {}: {} ({})", needed, had, cudaGetErrorString(search.result),
                         cudaGetErrorName(search.result));
  }
}

}  // namespace cuda

std::vector<GpuInfo> visible_gpus() {
  const cuda::GpuSearch search = cuda::search_gpus();
  const std::string reason = cuda::why_no_gpu(search);
  check(reason.empty(), ExitCode::preflight, "no GPU can be used: {}", reason);
  std::vector<GpuInfo> gpus;
  for (int ordinal = 0; ordinal < search.count; ++ordinal) {
    cudaDeviceProp properties{};
    DDP_CUDA(cudaGetDeviceProperties(&properties, ordinal));
    GpuInfo gpu;
    gpu.ordinal = ordinal;
    gpu.name = std::string(properties.name);
    gpu.pci_id = cuda::pci_id_of(ordinal);
    gpu.numa_node = cuda::numa_node_of(gpu.pci_id);
    gpu.major = properties.major;
    gpu.minor = properties.minor;
    gpu.total_bytes = properties.totalGlobalMem;
    gpus.push_back(gpu);
  }
  return gpus;
}

std::string cuda_versions() {
  int runtime = 0;
  int driver = 0;
  DDP_CUDA(cudaRuntimeGetVersion(&runtime));
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  const std::size_t cudnn = cudnnGetVersion();
  return fmt::format("CUDA {}, {}, cuDNN {}.{}.{}", cuda::cuda_version_text(runtime),
                     driver == 0 ? "no driver" : "driver " + cuda::cuda_version_text(driver), cudnn / 10000,
                     cudnn % 10000 / 100, cudnn % 100);
}

}  // namespace ddp
