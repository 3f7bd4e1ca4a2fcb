// The groups of ranks that each train one trial of a sweep, and the cores and GPUs of a group.
//
//   const Group group = form_group(session, communicator, topology, options);
//   if (group.leader) set_affinity(group.cpus);
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "job/mpi_session.h"
#include "machine/topology.h"
#include "options/options.h"

namespace ddp {

// The ranks that train one trial together; their first rank leads.
struct Group {
  bool leader = false;
  std::vector<int> cpus;  // of all of its ranks
  std::vector<int> gpus;  // ordinals among those visible; empty: none
};

// Collective. Consecutive --ranks-per-trial ranks are a group. Throws Error(usage) if that number does not divide the ranks, and
// Error(preflight) if a group spans hosts or there are fewer GPUs than ranks.
Group form_group(const MpiSession& session, Communicator& ranks, const Topology& topology, const Options& options);

}  // namespace ddp
