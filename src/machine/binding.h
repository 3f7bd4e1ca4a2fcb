// The cores and the number of compute threads of each rank, so that the ranks of a host do not interfere.
//
//   const Binding binding = bind_ranks(session, topology, options.distributed);   // before any thread is started
//   log_info("{}", binding.sentence);   // "2 ranks on 1 host, 1 thread each, bound to cores 0 | 1"
//
// Ranks of a host that see the same cores divide them evenly, by whole physical cores as long as there are enough. A
// rank that the launcher bound to cores of its own at the user's request keeps them. Open MPI's mpirun also binds by
// default, each rank to a single core; in that case the cores available to mpirun itself are divided.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/status/heartbeat.h"
#include "job/launch/launcher.h"
#include "job/mpi_session.h"
#include "machine/cores.h"
#include "machine/topology.h"
#include "options/options.h"

namespace ddp {

struct Binding {
  std::vector<int> cpus;  // the logical CPUs that this rank computes on
  int threads = 1;        // compute threads, as set in OpenMP
  bool bound = false;     // whether the rank is bound to `cpus`
  std::string sentence;   // a summary for all ranks
};

// Collective. Sets the affinity of the calling thread, which threads started by it inherit, unless options.bind is
// none, and OpenMP's number of threads for the calling thread. Warns if ranks or threads outnumber the cores.
Binding bind_ranks(const MpiSession& session, const Topology& topology, const DistributedOptions& options,
                   double timeout = rank_timeout());

// Restricts the compute threads of the calling thread, and threads that it starts meanwhile, to these CPUs, until it goes out
// of scope. No effect if the system refuses.
class RestrictedTo {
 public:
  explicit RestrictedTo(std::span<const int> cpus);
  ~RestrictedTo();
  RestrictedTo(const RestrictedTo&) = delete;
  RestrictedTo& operator=(const RestrictedTo&) = delete;

 private:
  std::vector<int> before_;
};

// The logical CPUs available to this rank: its affinity, or that of mpirun if mpirun bound the rank by default.
std::vector<int> available_cpus(const Environment& environment);

// The cores that a rank of a host sees, and its share of them; a pure function, for bind_ranks and its tests.
struct HostView {
  std::vector<std::vector<int>> cpus_of_ranks;             // by local rank
  CoreList cores;                                          // all physical cores of the CPUs of this rank
  double quota = std::numeric_limits<double>::infinity();  // the CPU quota of all ranks of the host together
};
struct CoreShare {
  std::vector<int> cpus;
  int cores = 1;       // physical cores, or logical CPUs where ranks share physical cores; at least 1
  bool alone = false;  // no other rank of the host computes on these CPUs
};
CoreShare share_of(const HostView& view, int local_rank);
// At least 1; at most the cores of the share and the rank's part of the quota.
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
