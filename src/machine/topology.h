// Where the ranks are: which host each runs on, and who shares a host. The local rank chooses the device.
//
//   const Topology topology = discover_topology(session);
//   topology.local_rank;          // 0 .. local_size - 1 on this host
//   topology.ranks[3].host_name;  // where rank 3 runs
#pragma once

#include <string>
#include <vector>

#include "base/status/heartbeat.h"
#include "job/mpi_session.h"

namespace ddp {

struct Topology {
  struct RankHost {
    int host = 0;  // hosts are numbered in the order of their lowest rank
    std::string host_name;
  };

  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks that share this host's memory
  int local_size = 1;
  int hosts = 1;
  std::vector<RankHost> ranks;  // by rank

  int host() const { return ranks[static_cast<std::size_t>(rank)].host; }
  const std::string& host_name() const { return ranks[static_cast<std::size_t>(rank)].host_name; }
};

// The topology of the ranks below `count` alone; this rank is one of them.
Topology of_first(const Topology& topology, int count);

// Collective. Two ranks are on the same host if they can share memory (MPI_Comm_split_type), regardless of host names.
Topology discover_topology(const MpiSession& session, double timeout = rank_timeout());

}  // namespace ddp
