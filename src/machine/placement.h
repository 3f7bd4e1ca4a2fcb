// The GPU of each rank: a pure function of the GPUs that the ranks see and of the options.
//
//   std::vector<RankView> views;                             // the GPUs that each rank sees, by rank
//   const Placement placement = place_ranks(views, options.device);
//   placement.gpus[rank].ordinal;                           // the GPU, among those that the rank sees
//
// Ranks of a host that see the same GPUs use one each, in the order of CUDA_VISIBLE_DEVICES or --gpus. Ranks that each
// see GPUs of their own, as with Slurm's --gpus-per-task=1, use the first one. GPUs are identified by PCI address.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/gpu.h"
#include "base/error.h"
#include "job/launch/launcher.h"
#include "options/options.h"

namespace ddp {

// The GPUs of its host that a rank sees.
struct RankView {
  int host = 0;
  std::string host_name;
  std::vector<GpuInfo> gpus;  // in the order of CUDA_VISIBLE_DEVICES
  std::string driver;         // the driver version of its host, for messages
  std::string allocated;      // the setting that allocated its GPUs: "SLURM_JOB_GPUS=0,1", or ""
  // Why it sees none, if `gpus` is empty.
  ExitCode trouble_code = ExitCode::preflight;
  std::string trouble;
};

struct Placement {
  std::vector<GpuInfo> gpus;  // by rank
  bool shared = false;  // some GPU has several ranks: gradients go through host memory by MPI, as NCCL refuses that
};

// `views` by rank; every rank sees at least one GPU. Throws Error(preflight) if a host has more ranks than GPUs, or if
// two ranks would share a GPU, unless --oversubscribe-gpus is given; Error(usage) if --gpus names a GPU that does not
// exist, or one twice.
Placement place_ranks(std::span<const RankView> views, const DeviceOptions& options);

// The setting by which a launcher or the user gave GPUs to this process: "CUDA_VISIBLE_DEVICES=0,1", "--gpus 2"; "" if
// there is none.
std::string allocated_gpus(const Environment& environment, const DeviceOptions& options);

// The GPUs that were allocated to the ranks of a host and that no rank uses: "host a: 2 of 4 GPUs (1 NVIDIA H200 at
// 0000:3b:00.0, ...)"; "" if there are none.
std::string idle_gpus(std::span<const RankView> views, std::span<const GpuInfo> gpus);

// The lowest rank that sees no GPU, or -1.
int first_without_gpu(std::span<const RankView> views);

// Rank, host, GPU, PCI address, NUMA node, driver, memory of each rank. On the CPU `gpus` is empty.
std::string placement_table(std::span<const RankView> views, std::span<const GpuInfo> gpus);

}  // namespace ddp
