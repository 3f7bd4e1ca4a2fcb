// The cores and the number of compute threads of each rank, so that the ranks of a host do not interfere.
//
//   const Binding binding = bind_ranks(session, topology, options.distributed);   // before any thread is started
//   log_info("{}", binding.sentence);   // "2 ranks on 1 host, 1 thread each, bound to cores 0 | 1"
//
// Ranks of a host that see the same cores share them out evenly, whole physical cores as long as there are enough. A
// rank that sees cores of its own, because the launcher has bound it on someone's word, keeps them. Open MPI's mpirun
// binds on nobody's word too, a rank to a single core of many: then the cores count that mpirun itself may use.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/heartbeat.h"
#include "job/launcher.h"
#include "job/mpi_session.h"
#include "machine/cores.h"
#include "machine/topology.h"
#include "options/options.h"

namespace ddp {

struct Binding {
  std::vector<int> cpus;  // the logical CPUs that this rank computes on
  int threads = 1;        // compute threads, as OpenMP has been told
  bool bound = false;     // whether the rank is held to `cpus`
  std::string sentence;   // what was chosen for all ranks
};

// Collective. Sets the affinity of the calling thread (helper threads that it starts inherit it) unless options.bind is
// none, and OpenMP's number of threads for the calling thread. Warns where ranks or threads outnumber the cores.
Binding bind_ranks(const MpiSession& session, const Topology& topology, const DistributedOptions& options,
                   double timeout = rank_timeout());

// The logical CPUs that this rank may count on: its affinity, or that of mpirun where that has bound it by default.
std::vector<int> available_cpus(const Environment& environment);

// What one rank of a host sees, and what share of it falls to it; pure, for bind_ranks and its tests.
struct HostView {
  std::vector<std::vector<int>> cpus_of_ranks;             // by local rank
  CoreList cores;                                          // all physical cores of the CPUs of this rank
  double quota = std::numeric_limits<double>::infinity();  // cores that the host grants to all its ranks together
};
struct CoreShare {
  std::vector<int> cpus;
  int cores = 1;       // physical cores, or logical CPUs where ranks share physical cores; at least 1
  bool alone = false;  // no other rank of the host computes on these CPUs
};
CoreShare share_of(const HostView& view, int local_rank);
// At least 1, and no more than the share's cores and the rank's part of the quota.
int threads_for(const CoreShare& share, double quota, int local_size);

// The sentence for ranks in their order.
struct RankBinding {
  int host = 0;
  int threads = 1;
  bool bound = false;
  bool alone = false;
  std::vector<int> cpus;
};
std::string describe_binding(std::span<const RankBinding> ranks);

}  // namespace ddp
