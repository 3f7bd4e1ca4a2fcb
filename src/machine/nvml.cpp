#include "machine/nvml.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <utility>

#include "base/error.h"

namespace ddp {
// Types of members need linkage: otherwise GCC 13 and 14 crash in unity builds (DDP_UNITY).
namespace nvml_interface {

// The part of NVML's binary interface that is used here, from the "NVML API Reference" (NVIDIA, release 13). These
// functions and structs are versioned by their names and do not change.
using NvmlStatus = int;
constexpr NvmlStatus kSuccess = 0;
constexpr NvmlStatus kInsufficientSize = 7;
constexpr NvmlStatus kFunctionNotFound = 13;
using Gpu = struct OpaqueGpu*;

struct PciInfo {
  std::array<char, 16> bus_id_legacy;
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  std::array<char, 32> bus_id;
};
struct MemoryInfo {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct Utilisation {
  unsigned gpu;
  unsigned memory;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance;
  unsigned compute_instance;
};

}  // namespace nvml_interface

namespace {

// NOLINTNEXTLINE(google-build-using-namespace): the namespace is local to this file
using namespace nvml_interface;

constexpr int kGpuSensor = 0;
constexpr int kMultiprocessorClock = 1;
constexpr unsigned kSpareProcesses = 8;
constexpr unsigned long long kNotAvailable = std::numeric_limits<unsigned long long>::max();

// Names of the bits of the clock throttle reasons.
constexpr std::array<const char*, 11> kReasons = {
    "",                   // idle: no throttling
    "clock settings",     // application clocks
    "power cap",          // by software
    "hardware slowdown",  // temperature or power brake
    "sync boost",         // limited by a slower GPU of its group
    "heat",               // by software
    "heat (hardware)",
    "power brake",
    "display clock",
    "board limit",
    "reliability",
};

// Groups of these reasons; the hardware slowdown has further bits that tell heat and power brake apart.
constexpr unsigned long long kHeatReasons = 0x20 | 0x40;
constexpr unsigned long long kPowerReasons = 0x04 | 0x80;
constexpr unsigned long long kEitherReason = 0x08;

// "00000000:3B:00.0" as CUDA writes it: "0000:3b:00.0".
std::string cuda_pci_id(const PciInfo& info) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", info.domain, info.bus, info.device);
}

std::string process_name(unsigned pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return name;
}

// Returns whether the library has the function and the call succeeds.
template <class... Parameters, class... Arguments>
bool ask(NvmlStatus (*function)(Parameters...), Arguments... arguments) {
  return function != nullptr && function(arguments...) == kSuccess;
}

template <std::size_t size>
std::string text_in(std::array<char, size>& buffer) {
  buffer.back() = '\0';
  return buffer.data();
}

std::vector<std::string> reason_words(unsigned long long reasons) {
  std::vector<std::string> words;
  for (std::size_t bit = 0; bit < kReasons.size(); ++bit) {
    if ((reasons >> bit & 1U) != 0 && *kReasons[bit] != '\0') words.emplace_back(kReasons[bit]);
  }
  if (reasons >> kReasons.size() != 0) words.emplace_back("unknown");
  return words;
}

}  // namespace

// The opened library and its functions; missing ones are null.
class Nvml::Library {
 public:
  Library();
  ~Library() {
    if (open_) (void)shutdown();
    if (handle_ != nullptr) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  std::string text_of(NvmlStatus result) const {
    const char* text = error_string == nullptr ? nullptr : error_string(result);
    return text == nullptr ? fmt::format("error {}", result) : text;
  }

  NvmlStatus (*init)() = nullptr;
  NvmlStatus (*shutdown)() = nullptr;
  const char* (*error_string)(NvmlStatus) = nullptr;
  NvmlStatus (*driver_version)(char*, unsigned) = nullptr;
  NvmlStatus (*gpu_count)(unsigned*) = nullptr;
  NvmlStatus (*gpu_at)(unsigned, Gpu*) = nullptr;
  NvmlStatus (*name)(Gpu, char*, unsigned) = nullptr;
  NvmlStatus (*uuid)(Gpu, char*, unsigned) = nullptr;
  NvmlStatus (*pci_info)(Gpu, PciInfo*) = nullptr;
  NvmlStatus (*memory_info)(Gpu, MemoryInfo*) = nullptr;
  NvmlStatus (*utilisation)(Gpu, Utilisation*) = nullptr;
  NvmlStatus (*temperature)(Gpu, int, unsigned*) = nullptr;
  NvmlStatus (*reasons)(Gpu, unsigned long long*) = nullptr;
  NvmlStatus (*processes)(Gpu, unsigned*, ProcessInfo*) = nullptr;
  NvmlStatus (*gpu_by_pci_id)(const char*, Gpu*) = nullptr;
  NvmlStatus (*clock)(Gpu, int, unsigned*) = nullptr;
  NvmlStatus (*highest_clock)(Gpu, int, unsigned*) = nullptr;

 private:
  template <class F>
  void find(F& function, const char* symbol, const char* older = nullptr) {
    function = reinterpret_cast<F>(dlsym(handle_, symbol));
    if (function == nullptr && older != nullptr) function = reinterpret_cast<F>(dlsym(handle_, older));
  }
  void find_functions();

  void* handle_ = nullptr;
  bool open_ = false;
};

Nvml::Library::Library() {
  const char* chosen = std::getenv("DDP_NVML_LIBRARY");
  const char* file = chosen == nullptr || *chosen == '\0' ? "libnvidia-ml.so.1" : chosen;
  handle_ = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    const char* why = dlerror();
    throw Error(ExitCode::preflight,
                fmt::format("no NVIDIA driver: {}", why != nullptr ? why : "its library cannot be opened"));
  }
  find_functions();
  const NvmlStatus result = init == nullptr || shutdown == nullptr ? kFunctionNotFound : init();
  if (result == kSuccess) {
    open_ = true;
    return;
  }
  const std::string why = text_of(result);
  dlclose(handle_);
  throw Error(ExitCode::preflight, fmt::format("no usable NVIDIA driver: nvmlInit_v2 failed: {}", why));
}

void Nvml::Library::find_functions() {
  find(init, "nvmlInit_v2");
  find(shutdown, "nvmlShutdown");
  find(error_string, "nvmlErrorString");
  find(driver_version, "nvmlSystemGetDriverVersion");
  find(gpu_count, "nvmlDeviceGetCount_v2");
  find(gpu_at, "nvmlDeviceGetHandleByIndex_v2");
  find(name, "nvmlDeviceGetName");
  find(uuid, "nvmlDeviceGetUUID");
  find(pci_info, "nvmlDeviceGetPciInfo_v3");
  find(memory_info, "nvmlDeviceGetMemoryInfo");
  find(utilisation, "nvmlDeviceGetUtilizationRates");
  find(temperature, "nvmlDeviceGetTemperature");
  find(reasons, "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons");
  find(processes, "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2");
  find(gpu_by_pci_id, "nvmlDeviceGetHandleByPciBusId_v2");
  find(clock, "nvmlDeviceGetClockInfo");
  find(highest_clock, "nvmlDeviceGetMaxClockInfo");
}

namespace {

template <class Library>
std::optional<std::vector<GpuProcess>> processes_of(const Library& library, Gpu gpu) {
  if (library.processes == nullptr) return std::nullopt;
  std::vector<ProcessInfo> infos;
  NvmlStatus result = kInsufficientSize;
  // More processes may start between querying their number and listing them.
  for (int attempt = 0; attempt < 5 && result == kInsufficientSize; ++attempt) {
    auto count = static_cast<unsigned>(infos.size());
    result = library.processes(gpu, &count, infos.empty() ? nullptr : infos.data());
    infos.resize(result == kInsufficientSize ? count + kSpareProcesses : std::min<std::size_t>(count, infos.size()));
  }
  if (result != kSuccess) return std::nullopt;
  std::vector<GpuProcess> processes;
  for (const ProcessInfo& info : infos) {
    GpuProcess& process = processes.emplace_back(GpuProcess{info.pid, process_name(info.pid), std::nullopt});
    if (info.used_memory != kNotAvailable) process.bytes = info.used_memory;
  }
  return processes;
}

template <class Library>
GpuStatus status_of(const Library& library, Gpu gpu, unsigned index) {
  GpuStatus status;
  status.index = index;
  std::array<char, 96> text{};
  if (ask(library.name, gpu, text.data(), static_cast<unsigned>(text.size()))) status.name = text_in(text);
  if (ask(library.uuid, gpu, text.data(), static_cast<unsigned>(text.size()))) status.uuid = text_in(text);
  PciInfo pci{};
  if (ask(library.pci_info, gpu, &pci)) status.pci_id = cuda_pci_id(pci);
  MemoryInfo memory{};
  if (ask(library.memory_info, gpu, &memory)) {
    status.memory = {.total = memory.total, .used = memory.used, .free = memory.free};
  }
  Utilisation utilisation{};
  if (ask(library.utilisation, gpu, &utilisation)) status.utilisation = utilisation.gpu;
  unsigned temperature = 0;
  if (ask(library.temperature, gpu, kGpuSensor, &temperature)) status.temperature = temperature;
  unsigned long long reasons = 0;
  if (ask(library.reasons, gpu, &reasons)) status.throttling = reason_words(reasons);
  status.processes = processes_of(library, gpu);
  return status;
}

}  // namespace

Nvml::Nvml() : library_(std::make_unique<Library>()) {}
Nvml::~Nvml() = default;

std::optional<std::string> Nvml::driver_version() const {
  std::array<char, 80> text{};
  if (!ask(library_->driver_version, text.data(), static_cast<unsigned>(text.size()))) return std::nullopt;
  return text_in(text);
}

std::vector<GpuStatus> Nvml::gpus() const {
  unsigned count = 0;
  const NvmlStatus result = library_->gpu_count == nullptr ? kFunctionNotFound : library_->gpu_count(&count);
  check(result == kSuccess, ExitCode::preflight, "the NVIDIA driver cannot enumerate the GPUs: {}",
        library_->text_of(result));
  std::vector<GpuStatus> gpus;
  for (unsigned index = 0; index < count; ++index) {
    Gpu gpu = nullptr;
    GpuStatus status;
    status.index = index;
    // A lost GPU has no handle but is still counted.
    if (ask(library_->gpu_at, index, &gpu)) status = status_of(*library_, gpu, index);
    gpus.push_back(std::move(status));
  }
  return gpus;
}

std::optional<GpuClock> Nvml::clock(const std::string& pci_id) const {
  Gpu gpu = nullptr;
  GpuClock clock;
  unsigned long long reasons = 0;
  if (!ask(library_->gpu_by_pci_id, pci_id.c_str(), &gpu) ||
      !ask(library_->clock, gpu, kMultiprocessorClock, &clock.mhz) ||
      !ask(library_->highest_clock, gpu, kMultiprocessorClock, &clock.highest_mhz) ||
      !ask(library_->reasons, gpu, &reasons) || clock.highest_mhz == 0) {
    return std::nullopt;
  }
  clock.heat = (reasons & kHeatReasons) != 0;
  clock.power = (reasons & kPowerReasons) != 0;
  if (!clock.heat && !clock.power && (reasons & kEitherReason) != 0) clock.heat = clock.power = true;
  return clock;
}

std::optional<std::uint64_t> process_bytes(const Nvml& nvml, const std::string& pci_id, unsigned pid) {
  for (const GpuStatus& gpu : nvml.gpus()) {
    if (gpu.pci_id != pci_id || !gpu.processes) continue;
    for (const GpuProcess& process : *gpu.processes) {
      if (process.pid == pid) return process.bytes;
    }
  }
  return std::nullopt;
}

std::string driver_version() {
  try {
    return Nvml().driver_version().value_or("");
  } catch (const Error&) {
    return "";
  }
}

}  // namespace ddp
