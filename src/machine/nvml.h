// The GPUs of this machine as reported by NVIDIA's management library, which is opened at run time.
//
//   const Nvml nvml;                                   // throws Error(preflight) if there is no driver
//   nvml.driver_version();                             // "580.95.05"
//   for (const GpuStatus& gpu : nvml.gpus()) ...    // all GPUs, regardless of CUDA_VISIBLE_DEVICES
//
// The library is libnvidia-ml.so.1, or the file in DDP_NVML_LIBRARY. Values that a GPU does not report are empty.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ddp {

// A process that holds GPU memory.
struct GpuProcess {
  unsigned pid = 0;
  std::string name;                    // empty if it is not visible, as from within a container
  std::optional<std::uint64_t> bytes;  // of GPU memory
};

struct GpuStatus {
  unsigned index = 0;  // in the order of PCI addresses, as nvidia-smi counts
  std::optional<std::string> name;
  std::optional<std::string> pci_id;  // "0000:3b:00.0", as in GpuInfo
  std::optional<std::string> uuid;
  struct MemoryUse {
    std::uint64_t total = 0;
    std::uint64_t used = 0;
    std::uint64_t free = 0;
  };
  std::optional<MemoryUse> memory;
  std::optional<unsigned> utilisation;                 // percent of the time in which a kernel ran
  std::optional<unsigned> temperature;                 // degrees Celsius
  std::optional<std::vector<std::string>> throttling;  // reasons for a reduced clock; empty: none
  std::optional<std::vector<GpuProcess>> processes;    // compute processes
};

// The clock of a GPU's multiprocessors.
struct GpuClock {
  unsigned mhz = 0;
  unsigned highest_mhz = 0;  // > 0
  bool heat = false;         // reduced because of the temperature
  bool power = false;        // reduced because of the power limit or the power supply
};

class Nvml {
 public:
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::optional<std::string> driver_version() const;
  // Throws Error(preflight) if the driver cannot count its GPUs.
  std::vector<GpuStatus> gpus() const;
  // Clock of the GPU at `pci_id`; takes some microseconds. nullopt if the driver does not report it.
  std::optional<GpuClock> clock(const std::string& pci_id) const;

 private:
  class Library;
  std::unique_ptr<Library> library_;
};

// GPU memory of the process `pid` on the GPU at `pci_id`; nullopt if it is not visible, as in most containers.
std::optional<std::uint64_t> process_bytes(const Nvml& nvml, const std::string& pci_id, unsigned pid);

// The driver version of this machine, or "" if it cannot be queried.
std::string driver_version();

}  // namespace ddp
