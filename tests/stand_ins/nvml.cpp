// A stand-in for libnvidia-ml.so.1 with NVIDIA's binary interface, so that tests need no driver. It has three GPUs: one
// busy, one idle, and one that has fallen off the bus. STAND_IN_NVML changes its behaviour:
//
//   no-driver   initialisation fails
//   throttled   the busy one runs at half of its highest clock because of heat
//   silent      every query of a GPU is refused
//   uncounted   the number of GPUs cannot be queried
//   empty       there are no GPUs
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define STAND_IN_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;
constexpr int kDriverNotLoaded = 9;
constexpr int kGpuIsLost = 15;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

struct StandInGpu {
  unsigned index;
};
StandInGpu gpus[2] = {{0}, {1}};
int sessions = 0;

bool mode_is(const char* mode) {
  const char* chosen = std::getenv("STAND_IN_NVML");
  return chosen != nullptr && std::strcmp(chosen, mode) == 0;
}
int answer() { return mode_is("silent") ? kNotSupported : kSuccess; }
int answer(char* text, unsigned room, const char* value) {
  if (answer() != kSuccess) return kNotSupported;
  if (room < std::strlen(value) + 1) return kInsufficientSize;
  std::memcpy(text, value, std::strlen(value) + 1);
  return kSuccess;
}

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct MemoryInfo {
  unsigned long long total, free, used;
};
struct Utilisation {
  unsigned gpu, memory;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(PciInfo) == 68 && sizeof(MemoryInfo) == 24 && sizeof(ProcessInfo) == 24);

int list_processes(const StandInGpu* gpu, unsigned* count, ProcessInfo* infos) {
  if (answer() != kSuccess) return kNotSupported;
  const unsigned room = *count;
  *count = gpu->index == 0 ? 2 : 0;
  if (*count > room) return kInsufficientSize;
  if (gpu->index == 0) {
    infos[0] = {static_cast<unsigned>(getpid()), 3 * kGiB, ~0U, ~0U};
    // A process in another PID namespace whose memory use is unknown.
    infos[1] = {4194305, ~0ULL, ~0U, ~0U};
  }
  return kSuccess;
}

int list_reasons(const StandInGpu* gpu, unsigned long long* reasons) {
  *reasons = gpu->index != 0 ? 0x1 : mode_is("throttled") ? 0x20 : 0x24;  // idle; heat; power cap and heat
  return answer();
}

}  // namespace

STAND_IN_EXPORT int nvmlInit_v2() {
  if (mode_is("no-driver")) return kDriverNotLoaded;
  ++sessions;
  return kSuccess;
}
STAND_IN_EXPORT int nvmlShutdown() {
  // More shutdowns than initialisations are a bug.
  if (--sessions < 0) std::abort();
  return kSuccess;
}
STAND_IN_EXPORT const char* nvmlErrorString(int result) {
  return result == kDriverNotLoaded ? "Driver Not Loaded" : "Not Supported";
}
STAND_IN_EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  if (mode_is("uncounted")) return kNotSupported;
  *count = mode_is("empty") ? 0 : 3;
  return kSuccess;
}
STAND_IN_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, StandInGpu** gpu) {
  if (index > 1) return kGpuIsLost;
  *gpu = &gpus[index];
  return kSuccess;
}
STAND_IN_EXPORT int nvmlDeviceGetName(StandInGpu*, char* name, unsigned room) {
  return answer(name, room, "NVIDIA H200");
}

#ifdef DDP_OLD_NVML
STAND_IN_EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(StandInGpu* gpu, unsigned long long* reasons) {
  return list_reasons(gpu, reasons);
}
STAND_IN_EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(StandInGpu* gpu, unsigned* count, ProcessInfo* infos) {
  return list_processes(gpu, count, infos);
}
#else
STAND_IN_EXPORT int nvmlSystemGetDriverVersion(char* version, unsigned room) {
  return answer(version, room, "580.95.05");
}
STAND_IN_EXPORT int nvmlDeviceGetUUID(StandInGpu* gpu, char* uuid, unsigned room) {
  return answer(uuid, room, gpu->index == 0 ? "GPU-0a" : "GPU-0b");
}
STAND_IN_EXPORT int nvmlDeviceGetPciInfo_v3(StandInGpu* gpu, PciInfo* info) {
  *info = {};
  info->bus = gpu->index == 0 ? 0x3b : 0xd8;
  std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
  return answer();
}
STAND_IN_EXPORT int nvmlDeviceGetMemoryInfo(StandInGpu* gpu, MemoryInfo* info) {
  *info = {140 * kGiB, (gpu->index == 0 ? 40 : 139) * kGiB, (gpu->index == 0 ? 100 : 1) * kGiB};
  return answer();
}
STAND_IN_EXPORT int nvmlDeviceGetUtilizationRates(StandInGpu* gpu, Utilisation* use) {
  *use = {gpu->index == 0 ? 97U : 0U, 50};
  return answer();
}
STAND_IN_EXPORT int nvmlDeviceGetTemperature(StandInGpu* gpu, int sensor, unsigned* degrees) {
  *degrees = gpu->index == 0 ? 83 : 31;
  return sensor == 0 ? answer() : kNotSupported;
}
STAND_IN_EXPORT int nvmlDeviceGetCurrentClocksEventReasons(StandInGpu* gpu, unsigned long long* reasons) {
  return list_reasons(gpu, reasons);
}
STAND_IN_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* id, StandInGpu** gpu) {
  if (std::strcmp(id, "0000:3b:00.0") != 0 && std::strcmp(id, "0000:d8:00.0") != 0) return kNotFound;
  *gpu = &gpus[std::strcmp(id, "0000:3b:00.0") == 0 ? 0 : 1];
  return kSuccess;
}
STAND_IN_EXPORT int nvmlDeviceGetClockInfo(StandInGpu* gpu, int domain, unsigned* mhz) {
  *mhz = gpu->index != 0 ? 345 : mode_is("throttled") ? 990 : 1755;
  return domain == 1 ? answer() : kNotSupported;
}
STAND_IN_EXPORT int nvmlDeviceGetMaxClockInfo(StandInGpu*, int domain, unsigned* mhz) {
  *mhz = 1980;
  return domain == 1 ? answer() : kNotSupported;
}
STAND_IN_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(StandInGpu* gpu, unsigned* count, ProcessInfo* infos) {
  return list_processes(gpu, count, infos);
}
#endif
