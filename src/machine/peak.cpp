#include "machine/peak.h"

#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace ddp {
namespace {

constexpr double kTera = 1e12;

// Teraflops in fp32, tf32 and bf16, with fp16 as fast as bf16; the more special names first.
struct GpuPeak {
  std::string_view name;
  double fp32;
  double tf32;
  double bf16;
};
constexpr std::array kGpuPeaks = {GpuPeak{"H100 PCIe", 51.2, 378, 756}, GpuPeak{"H100 NVL", 60, 418, 835},
                                  GpuPeak{"H100", 66.9, 494.7, 989.4},  GpuPeak{"H200", 66.9, 494.7, 989.4},
                                  GpuPeak{"A100", 19.5, 156, 312},      GpuPeak{"A10", 31.2, 62.5, 125},
                                  GpuPeak{"L40S", 91.6, 183, 362},      GpuPeak{"L4", 30.3, 60, 121}};

}  // namespace

std::optional<double> gpu_peak_flops(std::string_view device, Precision precision) {
  for (const GpuPeak& gpu : kGpuPeaks) {
    if (device.find(gpu.name) == std::string_view::npos) continue;
    switch (precision) {
      case Precision::fp32:
        return gpu.fp32 * kTera;
      case Precision::tf32:
        return gpu.tf32 * kTera;
      case Precision::bf16:
      case Precision::fp16:
        return gpu.bf16 * kTera;
    }
  }
  return std::nullopt;
}

std::optional<double> cpu_peak_flops(int threads, const std::string& cpuinfo) {
  constexpr double kMega = 1e6;
  // Two units, each with a multiplication and an addition for every lane.
  constexpr double kPerLane = 4;
  std::istringstream lines(cpuinfo);
  double clock = 0;
  double lanes = 0;
  for (std::string line; std::getline(lines, line) && (clock == 0 || lanes == 0);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (line.starts_with("cpu MHz")) clock = std::strtod(line.c_str() + colon + 1, nullptr) * kMega;
    if (!line.starts_with("flags")) continue;
    const std::string flags = line.substr(colon + 1) + " ";
    if (flags.find(" avx2 ") != std::string::npos && flags.find(" fma ") != std::string::npos) lanes = 8;
    if (flags.find(" avx512f ") != std::string::npos) lanes = 16;
  }
  const double flops = clock * lanes * kPerLane * threads;
  return flops > 0 ? std::optional(flops) : std::nullopt;
}

std::optional<double> cpu_peak_flops(int threads) {
  std::ifstream file("/proc/cpuinfo");
  std::stringstream text;
  text << file.rdbuf();
  return cpu_peak_flops(threads, text.str());
}

}  // namespace ddp
