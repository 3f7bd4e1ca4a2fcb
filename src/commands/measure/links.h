// The bandwidth of each link between the hosts of a job, to identify slow links and hosts.
//
//   const Links links = measure_links(*ranks.communicator, ranks.topology);   // collective; takes seconds
//   print(describe(links));   // "links   3 between 3 hosts: 117.5 MB/s at the median, the slowest ..."
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "machine/topology.h"

namespace ddp {

struct Link {
  int a = 0;  // indices into Links::names
  int b = 0;
  double rate = 0;  // bytes per second, mean of both directions
};

struct Links {
  std::vector<std::string> names;  // of the hosts; of the ranks if there is only one host
  bool of_hosts = true;
  std::vector<Link> measured;
};

// Measured between the lowest ranks of the hosts, or between the ranks of a single host. Each rank communicates with
// one other at a time; if there are very many links, a sample that includes every host. Identical on all ranks.
Links measure_links(Communicator& ranks, const Topology& topology);

// The median and the slowest link, and hosts whose links are all much slower than the others; "" without links.
std::string describe(const Links& links);

// The rate of the slowest link in bytes per second; infinite without links.
double slowest_rate(const Links& links);

}  // namespace ddp
