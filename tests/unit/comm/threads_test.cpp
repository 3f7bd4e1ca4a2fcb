#include "comm/transport/threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <span>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/sums/reduce.h"
#include "comm/transport/group.h"
#include "comm/transport/self.h"
#include "support/counting_communicator.h"
#include "unit/comm/communicator_suite.h"

namespace ddp {
namespace {

using testing::CommunicatorCase;
using ::testing::HasSubstr;

class Threads : public ::testing::TestWithParam<std::tuple<int, CommunicatorCase>> {};

TEST_P(Threads, Communicate) {
  const auto& [ranks, c] = GetParam();
  run_as_threads(ranks, c.body);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Threads,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 7),
                                            ::testing::ValuesIn(testing::communicator_cases())),
                         [](const auto& test) {
                           return std::get<1>(test.param).name + "On" + std::to_string(std::get<0>(test.param));
                         });

// More than a rank exchanges messages with at once.
TEST(ManyRanks, SumWithinAHost) {
  constexpr int kRanks = 37;
  run_as_threads(kRanks, [](Communicator& ranks) {
    const Rings rings = plan_rings(ranks.rank(), std::vector<int>(kRanks));
    for (const std::size_t elements : {10U, 1000U}) {
      std::vector<float> data(elements);
      for (std::size_t i = 0; i < elements; ++i) data[i] = static_cast<float>(ranks.rank() * 3 + static_cast<int>(i));
      std::vector<float> scratch(ring_scratch_elements(elements, rings));
      ring_sum(ranks, rings, std::span(data), std::span(scratch));
      for (std::size_t i = 0; i < elements; ++i) {
        ASSERT_EQ(data[i], static_cast<float>(3 * kRanks * (kRanks - 1) / 2 + kRanks * static_cast<int>(i)));
      }
    }
  });
}

// Several rounds, and numbers of ranks that are no powers of two.
class ManyRanksCase : public ::testing::TestWithParam<int> {};

TEST_P(ManyRanksCase, Communicate) {
  for (const CommunicatorCase& c : testing::communicator_cases()) {
    const bool short_one = c.name.starts_with("AllReduce") || c.name.starts_with("TreeSumsOfDoubles") ||
                           c.name == "EqualTextsKeepTheirRanks" || c.name == "AllGatherTextKeepsLengthAndOrder" ||
                           c.name == "BroadcastTextOfAnyLength";
    if (short_one) run_as_threads(GetParam(), c.body);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ManyRanksCase, ::testing::Values(9, 16, 23, 64),
                         [](const auto& test) { return "On" + std::to_string(test.param); });

TEST(ManyRanks, SumOnHostsOfDifferentSizes) {
  // 20, 9, 1 and 3 ranks: one part of the data, or with the one of a single rank left out, three.
  for (const int least : {1, 3}) {
    std::vector<int> hosts;
    for (const auto& [host, count] : {std::pair{4, 20}, {2, 9}, {7, least}, {3, 3}}) {
      hosts.insert(hosts.end(), static_cast<std::size_t>(count), host);
    }
    run_as_threads(static_cast<int>(hosts.size()), [&](Communicator& ranks) {
      const Rings rings = plan_rings(ranks.rank(), hosts);
      EXPECT_EQ(rings.local.parts, least);
      EXPECT_EQ(rings.across.size(), rings.local.place < least ? 4 : 1);
      for (const std::size_t elements : {2U, 1000U, 200000U}) {
        std::vector<float> data(elements);
        for (std::size_t i = 0; i < elements; ++i)
          data[i] = static_cast<float>(ranks.rank() + static_cast<int>(i % 50));
        std::vector<float> scratch(ring_scratch_elements(elements, rings));
        ring_sum(ranks, rings, std::span(data), std::span(scratch));
        const int n = ranks.size();
        for (std::size_t i = 0; i < elements; ++i) {
          ASSERT_EQ(data[i], static_cast<float>(n * (n - 1) / 2 + n * static_cast<int>(i % 50)));
        }
      }
      meet_on_host(ranks, rings);
    });
  }
}

// As runs add that began before there were two levels for such hosts.
TEST(Rings, OneRingOnHostsOfDifferentSizesOnRequest) {
  const std::vector<int> hosts = {0, 0, 1};
  const Rings one = plan_rings(1, hosts, /*one_ring_if_uneven=*/true);
  EXPECT_EQ(one.local.size(), 1);
  EXPECT_EQ(one.across.ranks, (std::vector<int>{0, 1, 2}));
  const Rings two = plan_rings(1, hosts);
  EXPECT_EQ(two.local.ranks, (std::vector<int>{0, 1}));
  EXPECT_FALSE(two.local.has_slice());
  EXPECT_EQ(plan_rings(1, std::vector<int>{0, 0, 1, 1}, true).local.size(), 2);
}

// The even and the odd ranks, at the same time. These cases expect their own numbers of ranks in errors.
class TwoGroups : public ::testing::TestWithParam<int> {};

TEST_P(TwoGroups, Communicate) {
  for (const CommunicatorCase& c : testing::communicator_cases()) {
    if (c.name == "SilentRankIsNamed" || c.name == "InterruptFreesAWaitingThread") continue;
    run_as_threads(GetParam(), [&](Communicator& ranks) {
      std::vector<int> members;
      for (int rank = ranks.rank() % 2; rank < ranks.size(); rank += 2) members.push_back(rank);
      const std::unique_ptr<Communicator> group = make_group(ranks, members);
      ASSERT_EQ(group->size(), ranks.size() / 2);
      ASSERT_EQ(group->rank(), ranks.rank() / 2);
      c.body(*group);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, TwoGroups, ::testing::Values(2, 4, 6),
                         [](const auto& test) { return "On" + std::to_string(test.param); });

TEST(Groups, ErrorsNameTheRanksOfTheJob) {
  try {
    run_as_threads(4, [](Communicator& ranks) {
      const int first = ranks.rank() / 2 * 2;
      const std::unique_ptr<Communicator> group = make_group(ranks, {first, first + 1});
      group->set_timeout(0.1);
      std::byte byte{};
      if (ranks.rank() == 2) group->receive({&byte, 1}, 1);
      ranks.barrier();
    });
    FAIL() << "nothing was sent";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 3"));
  }
}

TEST(Communicator, ARankSendsAsManyMessagesAsTheRanksHaveBits) {
  for (const auto& [ranks, messages] : {std::pair{2, 1}, {8, 3}, {64, 6}, {1000, 10}, {1024, 10}}) {
    CountingCommunicator counting(ranks / 3, ranks);
    const auto sent_by = [&](auto&& operation) {
      const std::uint64_t before = counting.sent().messages;
      operation();
      return static_cast<int>(counting.sent().messages - before);
    };
    std::int64_t flag = 1;
    std::vector<std::byte> all(static_cast<std::size_t>(ranks));
    EXPECT_EQ(sent_by([&] { counting.barrier(); }), messages) << ranks;
    EXPECT_EQ(sent_by([&] { counting.all_reduce(std::span(&flag, 1), ReduceOp::max); }), messages) << ranks;
    EXPECT_EQ(sent_by([&] { counting.all_gather(std::span(all).first(1), all); }), messages) << ranks;
    EXPECT_LE(sent_by([&] { (void)counting.broadcast_text("text", 0); }), 2 * messages) << ranks;
  }
}

// One of two ranks, whose peer always responds just after a poll: no rank is pending any more when its name is asked for.
class LatePeerCommunicator final : public Communicator {
 public:
  explicit LatePeerCommunicator(double seconds) : seconds_(seconds) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::unique_ptr<Communicator> duplicate() override { return nullptr; }
  void abort(int /*exit_code*/) noexcept override {}

 protected:
  void post(std::span<const Outgoing> /*out*/, std::span<const Incoming> /*in*/) override { begin_ = Clock::now(); }
  Progress poll() override {
    const std::chrono::duration<double> waited = Clock::now() - begin_;
    return waited.count() > seconds_ ? Progress::all : Progress::none;
  }
  std::vector<int> pending_peers() const override { return {}; }
  void give_up() noexcept override {}

 private:
  using Clock = std::chrono::steady_clock;
  double seconds_;
  Clock::time_point begin_;
};

TEST(Communicator, APeerThatRespondsWhileItIsReportedEndsTheWait) {
  // Long enough for a wait to be reported.
  LatePeerCommunicator communicator(0.3);
  EXPECT_NO_THROW(communicator.barrier());
  communicator.set_timeout(0.01);
  EXPECT_NO_THROW(communicator.barrier());
  communicator.interrupt();
  EXPECT_NO_THROW(communicator.barrier());
}

class Self : public ::testing::TestWithParam<CommunicatorCase> {};

TEST_P(Self, Communicates) { GetParam().body(*make_self_communicator()); }

INSTANTIATE_TEST_SUITE_P(OneRank, Self, ::testing::ValuesIn(testing::communicator_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(RunAsThreads, GivesEachRankItsNumber) {
  std::mutex mutex;
  std::set<int> seen;
  run_as_threads(5, [&](Communicator& ranks) {
    EXPECT_EQ(ranks.size(), 5);
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(seen.insert(ranks.rank()).second);
  });
  EXPECT_EQ(seen, (std::set<int>{0, 1, 2, 3, 4}));
}

TEST(RunAsThreads, AThrowingRankStopsTheOthersAndIsReported) {
  std::atomic<int> told = 0;
  try {
    run_as_threads(3, [&](Communicator& ranks) {
      if (ranks.rank() == 1) throw Error(ExitCode::data, "labels out of range");
      try {
        ranks.barrier();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::rank_lost);
        EXPECT_THAT(error.what(), HasSubstr("rank 1"));
        ++told;
        throw;
      }
    });
    ADD_FAILURE() << "the rank's error was lost";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_STREQ(error.what(), "labels out of range");
  }
  EXPECT_EQ(told, 2);
}

TEST(RunAsThreads, AWaitForARankThatHasReturnedFails) {
  try {
    run_as_threads(2, [](Communicator& ranks) {
      if (ranks.rank() == 0) ranks.barrier();
    });
    ADD_FAILURE() << "the wait should have failed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::rank_lost);
    EXPECT_THAT(error.what(), HasSubstr("rank 0 waits for rank 1, which has returned"));
  }
}

TEST(RunAsThreads, AbortEndsTheWaitsOfAllRanks) {
  try {
    run_as_threads(3, [](Communicator& ranks) {
      if (ranks.rank() == 2) ranks.abort(4);
      ranks.barrier();
    });
    ADD_FAILURE() << "the job should have ended";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::rank_lost);
    EXPECT_THAT(error.what(), HasSubstr("rank 2 aborted with exit code 4"));
  }
}

TEST(Communicator, WaitingLeavesTheCoreToOthers) {
  run_as_threads(2, [](Communicator& ranks) {
    const std::unique_ptr<Communicator> copy = ranks.duplicate();
    if (ranks.rank() == 0) {
      copy->set_timeout(0.5);
      EXPECT_THROW(copy->barrier(), Error);
      rusage usage{};
      ASSERT_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
      const auto microseconds = [](const timeval& time) { return time.tv_sec * 1000000 + time.tv_usec; };
      EXPECT_LT(microseconds(usage.ru_utime) + microseconds(usage.ru_stime), 250000);
    }
    ranks.barrier();
  });
}

}  // namespace
}  // namespace ddp
