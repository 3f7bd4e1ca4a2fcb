#include "machine/topology.h"

#include <algorithm>

#include "base/error.h"
#include "base/host.h"
#include "job/exchange.h"

namespace ddp {
Topology discover_topology(const MpiSession& session, double timeout) {
  Topology topology;
  topology.rank = session.rank();
  topology.size = session.size();
  // "LOWEST-RANK-OF-HOST NAME" from every rank.
  const std::vector<std::string> texts =
      all_gather_text(session, std::to_string(session.lowest_rank_of_host()) + " " + host_name(), timeout,
                      "the exchange of host names");
  std::vector<int> leaders;
  for (const std::string& text : texts) {
    const std::size_t blank = text.find(' ');
    const int leader = std::stoi(text.substr(0, blank));
    auto found = std::find(leaders.begin(), leaders.end(), leader);
    if (found == leaders.end()) found = leaders.insert(leaders.end(), leader);
    topology.ranks.push_back({static_cast<int>(found - leaders.begin()), text.substr(blank + 1)});
  }
  topology.hosts = static_cast<int>(leaders.size());
  topology.local_size = 0;
  for (int rank = 0; rank < topology.size; ++rank) {
    if (topology.ranks[static_cast<std::size_t>(rank)].host != topology.host()) continue;
    if (rank < topology.rank) ++topology.local_rank;
    ++topology.local_size;
  }
  return topology;
}

Topology of_first(const Topology& topology, int count) {
  Topology part = topology;
  part.size = count;
  part.ranks.resize(static_cast<std::size_t>(count));
  part.hosts = 0;
  part.local_size = 0;
  for (const Topology::RankHost& rank : part.ranks) {
    part.hosts = std::max(part.hosts, rank.host + 1);
    if (rank.host == topology.host()) ++part.local_size;
  }
  return part;
}

}  // namespace ddp
