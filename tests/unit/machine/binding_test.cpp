#include "machine/binding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace ddp {
namespace {

std::vector<int> first_cpus(int count) {
  std::vector<int> cpus(static_cast<std::size_t>(count));
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

// A host with CPUs 0 .. cores * threads - 1, where CPU c is on core c % cores, as Linux numbers hardware threads.
HostView host(int ranks, int cores, int threads_per_core = 1) {
  HostView view;
  view.cpus_of_ranks.assign(static_cast<std::size_t>(ranks), first_cpus(cores * threads_per_core));
  for (int core = 0; core < cores; ++core) {
    std::vector<int> members;
    for (int thread = 0; thread < threads_per_core; ++thread) members.push_back(core + thread * cores);
    view.cores.push_back(members);
  }
  return view;
}

TEST(Share, RanksThatSeeTheSameCoresShareThemOut) {
  EXPECT_EQ(share_of(host(2, 2), 0).cpus, std::vector<int>({0}));
  EXPECT_EQ(share_of(host(2, 2), 1).cpus, std::vector<int>({1}));
  EXPECT_EQ(share_of(host(2, 5), 0).cpus, std::vector<int>({0, 1, 2}));
  EXPECT_EQ(share_of(host(2, 5), 1).cpus, std::vector<int>({3, 4}));
  EXPECT_EQ(share_of(host(1, 4), 0).cpus, std::vector<int>({0, 1, 2, 3}));
}

TEST(Share, HardwareThreadsOfACoreStayTogether) {
  const CoreShare share = share_of(host(2, 4, 2), 1);
  EXPECT_EQ(share.cpus, std::vector<int>({2, 3, 6, 7}));
  EXPECT_EQ(share.cores, 2);
  // With more ranks than cores, hardware threads are distributed individually.
  EXPECT_EQ(share_of(host(4, 2, 2), 0).cpus, std::vector<int>({0}));
  EXPECT_EQ(share_of(host(4, 2, 2), 1).cpus, std::vector<int>({2}));
}

TEST(Share, OfTooManyRanksIsAllCores) {
  for (int rank = 0; rank < 3; ++rank) {
    const CoreShare share = share_of(host(3, 2), rank);
    EXPECT_EQ(share.cpus, std::vector<int>({0, 1}));
    EXPECT_EQ(share.cores, 1);
    EXPECT_FALSE(share.alone);
  }
}

TEST(Share, ARankThatSeesItsOwnCoresKeepsThem) {
  HostView view;
  view.cpus_of_ranks = {{0, 1}, {2, 3}};
  view.cores = {{2}, {3}};
  EXPECT_EQ(share_of(view, 1).cpus, std::vector<int>({2, 3}));
  // Two sockets with two ranks each.
  view.cpus_of_ranks = {{0, 1}, {2, 3}, {0, 1}, {2, 3}};
  EXPECT_EQ(share_of(view, 1).cpus, std::vector<int>({2}));
  EXPECT_EQ(share_of(view, 3).cpus, std::vector<int>({3}));
}

TEST(Share, SharesAreDisjointCompleteAndEven) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 200; ++trial) {
    const int cores = 1 + static_cast<int>(random() % 16);
    const int smt = 1 + static_cast<int>(random() % 2);
    const int ranks = 1 + static_cast<int>(random() % static_cast<unsigned>(cores * smt));
    const HostView view = host(ranks, cores, smt);
    std::multiset<int> used;
    int fewest = cores * smt;
    int most = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const CoreShare share = share_of(view, rank);
      ASSERT_TRUE(share.alone);
      used.insert(share.cpus.begin(), share.cpus.end());
      fewest = std::min(fewest, share.cores);
      most = std::max(most, share.cores);
    }
    const std::vector<int> all = first_cpus(cores * smt);
    ASSERT_TRUE(std::equal(used.begin(), used.end(), all.begin(), all.end()));
    ASSERT_LE(most - fewest, 1);
    ASSERT_GE(fewest, 1);
  }
}

TEST(Threads, StayWithinShareAndQuota) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  CoreShare share;
  share.cores = 8;
  EXPECT_EQ(threads_for(share, kNone, 2), 8);
  EXPECT_EQ(threads_for(share, 6.0, 2), 3);
  EXPECT_EQ(threads_for(share, 5.9, 2), 2);
  EXPECT_EQ(threads_for(share, 0.5, 2), 1);
  EXPECT_EQ(threads_for(share, 64.0, 2), 8);
}

RankBinding bound(int host, int threads, std::vector<int> cpus) {
  return {.host = host, .threads = threads, .bound = true, .alone = true, .cpus = std::move(cpus)};
}

TEST(Sentence, SaysWhatWasChosen) {
  EXPECT_EQ(describe_binding(std::vector{bound(0, 1, {0}), bound(0, 1, {1})}),
            "2 ranks on 1 host, 1 thread each, bound to cores 0 | 1");
  EXPECT_EQ(describe_binding(std::vector{bound(0, 4, {0, 1, 2, 3})}),
            "1 rank on 1 host, 4 threads, bound to cores 0-3");
  EXPECT_EQ(describe_binding(std::vector{bound(0, 1, {5})}), "1 rank on 1 host, 1 thread, bound to core 5");
  EXPECT_EQ(describe_binding(std::vector{bound(0, 3, {0, 1, 2}), bound(0, 2, {3, 4})}),
            "2 ranks on 1 host, 2 to 3 threads each, bound to cores 0-2 | 3-4");
  EXPECT_EQ(describe_binding(std::vector{bound(0, 1, {0}), bound(1, 1, {0})}),
            "2 ranks on 2 hosts, 1 thread each, bound to core 0 on each host");
  EXPECT_EQ(describe_binding(std::vector{bound(0, 1, {0}), bound(1, 1, {1})}),
            "2 ranks on 2 hosts, 1 thread each, bound differently on each host");
  const RankBinding crowded{.host = 0, .threads = 1, .bound = true, .alone = false, .cpus = {0, 1}};
  EXPECT_EQ(describe_binding(std::vector(3, crowded)), "3 ranks on 1 host, 1 thread each, sharing cores 0-1");
  const RankBinding loose{.host = 0, .threads = 2, .bound = false, .alone = true, .cpus = {0, 1}};
  EXPECT_EQ(describe_binding(std::vector{loose}), "1 rank on 1 host, 2 threads, not bound");
  std::vector<RankBinding> many;
  for (int rank = 0; rank < 16; ++rank) many.push_back(bound(0, 2, {2 * rank, 2 * rank + 1}));
  EXPECT_EQ(describe_binding(many), "16 ranks on 1 host, 2 threads each, bound to 2 cores each");
}

}  // namespace
}  // namespace ddp
