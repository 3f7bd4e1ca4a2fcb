#include "commands/measure/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/transport/threads.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Runs ranks as threads, placed on `hosts`, and returns rank 0's result.
Links measure(const std::vector<int>& hosts) {
  Links result;
  std::mutex mutex;
  run_as_threads(static_cast<int>(hosts.size()), [&](Communicator& ranks) {
    Topology topology;
    topology.rank = ranks.rank();
    topology.size = ranks.size();
    for (const int host : hosts) {
      topology.ranks.push_back({host, "n" + std::to_string(host)});
      topology.hosts = std::max(topology.hosts, host + 1);
    }
    const Links links = measure_links(ranks, topology);
    const std::scoped_lock lock(mutex);
    if (ranks.rank() == 0) result = links;
  });
  return result;
}

TEST(LinksTest, EveryPairIsMeasuredOnce) {
  for (int count = 1; count <= 6; ++count) {
    std::vector<int> hosts;
    // Two ranks per host; the lower one measures.
    for (int host = 0; host < count; ++host) hosts.insert(hosts.end(), {host, host});
    const Links links = measure(hosts);
    const int ends = count == 1 ? 2 : count;  // on a single host, pairs of ranks are measured
    EXPECT_EQ(links.of_hosts, count > 1);
    std::set<std::pair<int, int>> pairs;
    for (const Link& link : links.measured) {
      EXPECT_GT(link.rate, 0);
      EXPECT_TRUE(pairs.insert({link.a, link.b}).second);
    }
    EXPECT_EQ(static_cast<int>(pairs.size()), ends * (ends - 1) / 2) << count;
  }
  EXPECT_TRUE(measure({0}).measured.empty());
  EXPECT_EQ(describe(measure({0})), "");
}

TEST(LinksTest, ASlowHostIsNamedAndASlowLinkToo) {
  Links links{{"a", "b", "c"}, true, {{0, 1, 118e6}, {0, 2, 1.2e6}, {1, 2, 1.3e6}}};
  EXPECT_EQ(describe(links),
            "links   3 between 3 hosts: 1.3 MB/s at the median, the slowest a - c with 1.2 MB/s\n"
            "slow    c: its links carry 1.3 MB/s at most, those between the others 118 MB/s\n");
  EXPECT_EQ(slowest_rate(links), 1.2e6);
  links.measured = {{0, 1, 118e6}, {0, 2, 1.2e6}, {1, 2, 117e6}};
  EXPECT_THAT(describe(links), AllOf(HasSubstr("the slowest a - c with 1.2 MB/s"), Not(HasSubstr("slow  "))));
  links = {{"a", "b"}, true, {{0, 1, 1.2e6}}};
  EXPECT_EQ(describe(links), "links   1 between 2 hosts: 1.2 MB/s at the median, the slowest a - b with 1.2 MB/s\n");
}

}  // namespace
}  // namespace ddp
