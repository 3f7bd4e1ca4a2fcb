// How fast the links between the hosts of a job are, one by one, so that a slow one has a name.
//
//   const Links links = measure_links(*ranks.communicator, ranks.topology);   // collective; seconds, whatever the
//   links print(describe(links));   // "links   3 between 3 hosts: 117.5 MB/s at the median, the slowest a - c with 1.2
//   MB/s\n"
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "machine/topology.h"

namespace ddp {

struct Link {
  int a = 0;  // places in Links::names
  int b = 0;
  double rate = 0;  // bytes a second, the mean of both directions
};

struct Links {
  std::vector<std::string> names;  // of the hosts; of one host, its ranks
  bool of_hosts = true;
  std::vector<Link> measured;
};

// Between the lowest ranks of the hosts, or between the ranks of a single one. Each rank talks to one other at a time;
// of very many links as many as fit some seconds are measured, those of each host among them. The same on all ranks.
Links measure_links(Communicator& ranks, const Topology& topology);

// The median and the slowest, and hosts whose links are all much slower than those between the others; "" without
// links.
std::string describe(const Links& links);

// Of the slowest link, bytes a second; infinite without links.
double slowest_rate(const Links& links);

}  // namespace ddp
