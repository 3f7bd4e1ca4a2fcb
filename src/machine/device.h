// The device of this job: the CPU, or one GPU per rank.
//
//   const Device device = choose_device(communicator, topology, options, open_gpu_module);
//   std::unique_ptr<Backend> backend =
//       device.gpu_module ? device.gpu_module->make_backend(device.config) : make_cpu_backend();
//
// All ranks use the same kind of device, since they reduce their gradients by one transport.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/gpu.h"
#include "comm/communicator.h"
#include "comm/gpu_module.h"
#include "machine/placement.h"
#include "machine/topology.h"
#include "options/options.h"

namespace ddp {

struct Device {
  std::shared_ptr<GpuModule> gpu_module;  // null: the CPU
  GpuBackendConfig config;                // this rank's GPU; on the CPU only the precision counts
  // The GPU to plan for instead of one that is present; nothing can run on it.
  std::optional<GpuDescription> described;
  bool through_host = false;    // ranks share GPUs: gradients are reduced by MPI through host memory
  std::string note;             // for the log: why no GPU is used, or how GPUs are shared
  std::vector<RankView> views;  // what each rank sees, by rank
  std::vector<GpuInfo> gpus;    // of all ranks, by rank; empty on the CPU
};

// open_gpu_module() or a stand-in for it.
using GpuModuleOpener = std::function<std::shared_ptr<GpuModule>()>;

// Collective. --device auto selects the CPU if any rank sees no GPU; with --device cuda that is an error. Errors of
// place_ranks() are thrown on all ranks, and rank 0 reports them. With --device cpu no GPU library is opened. Prints
// the table of --log-placement on rank 0.
Device choose_device(Communicator& ranks, const Topology& topology, const Options& options,
                     const GpuModuleOpener& open);

}  // namespace ddp
