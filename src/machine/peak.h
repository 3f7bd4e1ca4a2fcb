// The nominal peak of a device, to which the speed of training is compared ("MFU", model FLOPs utilization).
//
//   std::optional<double> flops = gpu_peak_flops("NVIDIA H100 80GB HBM3", Precision::bf16);   // 989e12
//   std::optional<double> rank = cpu_peak_flops(/*threads=*/4);   // 4 cores at their nominal clock
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/types/precision.h"

namespace ddp {

// Peak of dense matrix products, FLOP/s, from the data sheets; nullopt for a GPU that is not in the table. `device` is a
// text that contains its name.
std::optional<double> gpu_peak_flops(std::string_view device, Precision precision);

// Peak of fp32 multiply-adds on this many cores of this machine, FLOP/s: two vector units at the clock that the kernel reports;
// nullopt on other processors than x86 with AVX2.
std::optional<double> cpu_peak_flops(int threads);
// The same for the text of /proc/cpuinfo.
std::optional<double> cpu_peak_flops(int threads, const std::string& cpuinfo);

}  // namespace ddp
