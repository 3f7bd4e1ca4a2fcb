#include "comm/threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <tuple>

#include "base/error.h"
#include "comm/self.h"
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
