// A GPU that is described by a file, to plan for it on a machine without it.
//
//   const GpuDescription gpu = read_gpu_description("configs/gpus/h100.json");   // gpu.name, gpu.total_bytes
//   const Device device = describe_device(options, open_gpu_module_without_driver);
#pragma once

#include <filesystem>

#include "backend/gpu.h"
#include "machine/device.h"
#include "options/options.h"

namespace ddp {

// Throws Error(usage) for a file that cannot be read or is not cuDNN's description of a GPU.
GpuDescription read_gpu_description(const std::filesystem::path& path);

// The device of a job whose ranks each plan for the GPU of --gpu-description. Throws what read_gpu_description() and
// `open` throw.
Device describe_device(const Options& options, const GpuModuleOpener& open);

}  // namespace ddp
