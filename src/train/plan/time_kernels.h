// Times the kernels of a plan, shared among the ranks of rank 0's host.
//
//   const TimedKernels timed = time_kernels(session, ranks, device, backend.ops(), stages);
//   LayoutPlan plan = plan_layouts(backend.ops(), stages, timed.queries, timed.answers);   // on rank 0
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "job/mpi_session.h"
#include "machine/device.h"
#include "model/layout_plan.h"

namespace ddp {

struct TimedKernels {
  std::vector<KernelQuery> queries;
  std::vector<KernelChoice> answers;  // on rank 0
  int ranks = 1;                      // that took part
};

// Collective. On CPUs the ranks of rank 0's host with the same kernels and threads take part, each on its own cores; on
// GPUs, which ranks may share, rank 0 alone.
TimedKernels time_kernels(const MpiSession& session, Communicator& ranks, const Device& device, OpFactory& ops,
                          const std::vector<Stage>& stages);

}  // namespace ddp
