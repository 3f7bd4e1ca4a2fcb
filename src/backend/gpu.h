// The GPU settings of a run: device, precision and memory limit.
//
//   GpuBackendConfig config{.ordinal = local_rank, .precision = Precision::bf16, .memory_fraction = 0.4};
//
// Plain structs without CUDA, shared by the GPU module and the program that loads it.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "base/types/precision.h"

namespace ddp {

// A GPU that this process may use.
struct GpuInfo {
  int ordinal = 0;     // among the visible ones, for GpuBackendConfig
  std::string name;    // "NVIDIA H200"
  std::string pci_id;  // "0000:3b:00.0", lower case: the same GPU in every process of a node
  int numa_node = -1;  // -1: unknown
  int major = 0;       // compute capability
  int minor = 0;
  std::size_t total_bytes = 0;
};

// A GPU that this machine does not have, as cuDNN describes one.
struct GpuDescription {
  std::string json;  // cuDNN's own text
  std::string name;  // "NVIDIA H100 80GB HBM3"
  int major = 0;     // compute capability
  int minor = 0;
  int multiprocessors = 0;
  std::size_t shared_bytes = 0;  // of shared memory, the most that a block may ask for
  std::size_t total_bytes = 0;
};

struct GpuBackendConfig {
  int ordinal = 0;
  Precision precision = Precision::fp32;
  bool deterministic = false;    // excludes kernels without a fixed order of additions
  double memory_fraction = 1;    // of the GPU's memory, for everything that this process holds
  std::size_t memory_limit = 0;  // bytes; 0: no limit
  // GPU memory of this process as counted by the driver; null, or no value: unknown.
  std::function<std::optional<std::size_t>()> process_bytes = {};
};

}  // namespace ddp
