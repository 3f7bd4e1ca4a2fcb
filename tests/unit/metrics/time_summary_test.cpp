#include "metrics/display/time_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <sstream>

namespace ddp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Ranks of 10 s each: 8 s of backward and 2 s of waiting.
std::vector<PhaseTotals> even_ranks(std::size_t count) {
  std::vector<PhaseTotals> ranks(count);
  for (PhaseTotals& rank : ranks) {
    rank[Phase::backward] = 8;
    rank[Phase::exposed_communication] = 2;
  }
  return ranks;
}

TEST(SlowestRankTest, IsTheOneThatWorksLongest) {
  auto ranks = even_ranks(4);
  ranks[2][Phase::backward] = 9.6;
  ranks[2][Phase::exposed_communication] = 0.4;
  ranks[0][Phase::evaluation] = 50;  // done only by rank 0
  const SlowestRank slowest = slowest_rank(ranks);
  EXPECT_EQ(slowest.rank, 2);
  EXPECT_EQ(slowest.phase, Phase::backward);
  EXPECT_NEAR(slowest.seconds, 9.6 - 8.4, 1e-12);
  EXPECT_NEAR(slowest.share, 1.2 / 22.5, 1e-12);
  const std::vector<std::string> hosts = {"a", "a", "b", "b"};
  EXPECT_EQ(slowest_rank_text(ranks, hosts),
            "slowest rank: 2 on b, 1.2 s above the mean, 5.3% of the wall time (backward)");
}

// A rank far above the mean of a phase does not matter if the phase is a small part of the wall time.
TEST(SlowestRankTest, IsJudgedByTheWallTimeAndTheNetworkIsNamed) {
  std::vector<PhaseTotals> ranks(2);
  for (PhaseTotals& rank : ranks) rank[Phase::exposed_communication] = 97;
  ranks[0][Phase::forward] = 0.8;
  ranks[1][Phase::forward] = 1.8;
  const std::vector<std::string> hosts = {"a", "b"};
  EXPECT_EQ(slowest_rank_text(ranks, hosts),
            "the ranks are balanced: rank 1 on b is 0.5% of the wall time above the mean; 99% of it is communication; "
            "'ddp_train check' on the same hosts measures each link");
}

TEST(SlowestRankTest, IsFoundInEveryPhaseOfTheStep) {
  std::random_device random;
  for (const Phase phase : {Phase::data_wait, Phase::forward, Phase::backward, Phase::optimizer}) {
    auto ranks = even_ranks(5);
    const std::size_t slow = random() % 5;
    ranks[slow][phase] += 1;
    ranks[(slow + 1) % 5][Phase::exposed_communication] += 3;
    EXPECT_EQ(slowest_rank(ranks).rank, static_cast<int>(slow));
    EXPECT_EQ(slowest_rank(ranks).phase, phase);
  }
}

TEST(SlowestRankTest, EvenRanksAreSaidToBeEven) {
  auto ranks = even_ranks(2);
  ranks[1][Phase::backward] = 8.02;
  const std::vector<std::string> hosts = {"a", "b"};
  EXPECT_EQ(slowest_rank_text(ranks, hosts),
            "the ranks are balanced: rank 1 on b is 0.1% of the wall time above the mean; 20% of it is communication; "
            "'ddp_train check' on the same hosts measures each link");
  const std::vector<PhaseTotals> idle(2);
  EXPECT_THAT(slowest_rank_text(idle, hosts), HasSubstr("0.0% of the wall time above the mean"));
}

// Waiting between ranks of one host is not caused by the network.
TEST(SlowestRankTest, OnOneHostThereIsNoNetworkToName) {
  const std::vector<std::string> hosts = {"a", "a"};
  EXPECT_THAT(slowest_rank_text(even_ranks(2), hosts), Not(HasSubstr("network")));
}

TEST(SlowestRankTest, OneRankHasNoSlowest) {
  const std::vector<std::string> host = {"a"};
  EXPECT_EQ(slowest_rank_text(even_ranks(1), host), "");
}

TEST(TimeTableTest, ShowsMeanShareAndLongest) {
  auto ranks = even_ranks(2);
  ranks[1][Phase::backward] = 9;
  ranks[1][Phase::exposed_communication] = 1;
  EXPECT_EQ(time_table(ranks),
            "time by phase                   mean   of wall     longest\n"
            "  data wait                   0.00 s      0.0%\n"
            "  forward                     0.00 s      0.0%\n"
            "  backward                    8.50 s     85.0%      9.00 s  rank 1\n"
            "  exposed communication       1.50 s     15.0%      2.00 s  rank 0\n"
            "  optimizer                   0.00 s      0.0%\n"
            "  evaluation                  0.00 s      0.0%\n"
            "  checkpoint                  0.00 s      0.0%\n"
            "  other                       0.00 s      0.0%\n"
            "  wall                       10.00 s    100.0%\n");
  EXPECT_THAT(time_table(std::span(ranks).first(1)), Not(HasSubstr("rank")));
}

TEST(TimeTableTest, ColumnsStayAlignedForRunsOfAnyLength) {
  for (const double factor : {0.0, 1e-6, 1e-3, 1.0, 1e3, 1e5}) {
    auto ranks = even_ranks(3);
    for (PhaseTotals& rank : ranks) {
      for (double& seconds : rank.seconds) seconds *= factor;
    }
    std::istringstream lines(time_table(ranks));
    std::string line;
    while (std::getline(lines, line)) {
      const auto percent = line.find('%');
      EXPECT_TRUE(percent == std::string::npos || percent == 45) << line;
    }
  }
}

TEST(TimeLineTest, NamesTheLongestPhaseFirst) {
  auto ranks = even_ranks(2);
  ranks[0][Phase::checkpoint] = 0.01;
  EXPECT_EQ(time_line(ranks),
            "time by phase    backward 80%, exposed communication 20%, of 10.0 s; --summary full shows all\n");
}

}  // namespace
}  // namespace ddp
