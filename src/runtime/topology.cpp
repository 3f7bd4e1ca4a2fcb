#include "runtime/topology.h"

#include <mpi.h>

#include <algorithm>

#include "base/error.h"
#include "base/heartbeat.h"
#include "base/host.h"
#include "runtime/exchange.h"
#include "runtime/mpi_check.h"

namespace ddp {
namespace {

class HostCommunicator {
 public:
  explicit HostCommunicator(int rank) {
    check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &handle_),
              "MPI_Comm_split_type");
  }
  ~HostCommunicator() { MPI_Comm_free(&handle_); }
  HostCommunicator(const HostCommunicator&) = delete;
  HostCommunicator& operator=(const HostCommunicator&) = delete;

  MPI_Comm get() const { return handle_; }

 private:
  MPI_Comm handle_ = MPI_COMM_NULL;
};

}  // namespace

Topology discover_topology(const MpiSession& session, double timeout) {
  Topology topology;
  topology.rank = session.rank();
  topology.size = session.size();
  int lowest = session.rank();
  {
    const RankWait wait("the exchange of host names");
    const HostCommunicator host(session.rank());
    check_mpi(MPI_Comm_rank(host.get(), &topology.local_rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(host.get(), &topology.local_size), "MPI_Comm_size");
    check_mpi(MPI_Bcast(&lowest, 1, MPI_INT, 0, host.get()), "MPI_Bcast");
  }
  // "LOWEST-RANK-OF-THE-HOST NAME" of every rank.
  const std::vector<std::string> texts =
      all_gather_text(session, std::to_string(lowest) + " " + host_name(), timeout, "the exchange of host names");
  std::vector<int> leaders;
  for (const std::string& text : texts) {
    const std::size_t blank = text.find(' ');
    const int leader = std::stoi(text.substr(0, blank));
    auto found = std::find(leaders.begin(), leaders.end(), leader);
    if (found == leaders.end()) found = leaders.insert(leaders.end(), leader);
    topology.ranks.push_back({static_cast<int>(found - leaders.begin()), text.substr(blank + 1)});
  }
  topology.hosts = static_cast<int>(leaders.size());
  return topology;
}

}  // namespace ddp
