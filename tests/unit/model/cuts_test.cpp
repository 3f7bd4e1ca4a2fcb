#include "model/cuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "model/zoo.h"

namespace ddp::cuts_tests {
namespace {

std::vector<std::string> names_behind(const std::vector<Stage>& stages, const std::vector<Cut>& cuts) {
  std::vector<std::string> names;
  for (const Cut& cut : cuts) names.push_back(stages[cut.stage].name);
  return names;
}

TEST(Cuts, AreEverywhereInAChain) {
  const Graph graph = make_model("lenet", {1, 28, 28}, 10);
  const std::vector<Stage> stages = make_stages(graph, 4);
  const std::vector<Cut> cuts = possible_cuts(graph, stages);
  ASSERT_EQ(cuts.size(), stages.size() - 1);
  for (std::size_t c = 0; c < cuts.size(); ++c) EXPECT_EQ(cuts[c].stage, c + 1);
}

// Behind each cut one value is read, checked by brute force; behind each other place several are.
TEST(Cuts, AreCrossedByOneValue) {
  for (const char* model : {"resnet18-d2l", "resnet9", "mnist-towers", "airbench94"}) {
    const Graph graph = make_model(model, {3, 32, 32}, 10);
    const std::vector<Stage> stages = make_stages(graph, 2);
    const std::vector<Cut> cuts = possible_cuts(graph, stages);
    for (std::size_t s = 1; s < stages.size(); ++s) {
      std::vector<int> crossing;
      for (std::size_t reader = s; reader < stages.size(); ++reader) {
        for (const StageInput& input : stages[reader].inputs) {
          if (input.stage < static_cast<int>(s)) crossing.push_back(input.stage);
        }
      }
      std::sort(crossing.begin(), crossing.end());
      crossing.erase(std::unique(crossing.begin(), crossing.end()), crossing.end());
      const bool one = crossing.size() == 1 && crossing[0] == static_cast<int>(s) - 1;
      const bool cut = std::any_of(cuts.begin(), cuts.end(), [&](const Cut& c) { return c.stage == s; });
      EXPECT_EQ(cut, one) << model << ", before " << stages[s].name;
    }
  }
}

TEST(Cuts, LeaveResidualBlocksWhole) {
  const Graph graph = make_model("resnet18-d2l", {1, 28, 28}, 10);
  const std::vector<Stage> stages = make_stages(graph, 2);
  const std::vector<std::string> names = names_behind(stages, possible_cuts(graph, stages));
  EXPECT_FALSE(names.empty());
  EXPECT_LT(names.size(), stages.size() / 2);
}

// The longest part, by trying every choice.
double least(const std::vector<double>& seconds, std::int64_t elements, const std::vector<Cut>& cuts, std::size_t from,
             std::size_t stage, std::int64_t offset, double crossing, std::size_t parts) {
  const auto sum = [&](std::size_t end) {
    double all = crossing;
    for (std::size_t s = stage; s < end; ++s) all += seconds[s];
    return all;
  };
  constexpr double kNone = std::numeric_limits<double>::infinity();
  if (parts == 1) return offset == elements ? kNone : sum(seconds.size());
  double best = kNone;
  for (std::size_t c = from; c < cuts.size(); ++c) {
    if (cuts[c].offset == offset) continue;
    const double rest =
        least(seconds, elements, cuts, c + 1, cuts[c].stage, cuts[c].offset, cuts[c].seconds, parts - 1);
    best = std::min(best, std::max(sum(cuts[c].stage) + cuts[c].seconds, rest));
  }
  return best;
}

TEST(Cuts, BalanceTheParts) {
  std::mt19937 random{std::random_device{}()};
  const auto below = [&](unsigned end) { return static_cast<std::int64_t>(random() % end); };
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<double> seconds(static_cast<std::size_t>(2 + below(8)));
    for (double& each : seconds) each = static_cast<double>(1 + below(100));
    std::vector<Cut> cuts;
    std::int64_t offset = 0;
    for (std::size_t s = 1; s < seconds.size(); ++s) {
      offset += below(3) == 0 ? 0 : 10;
      if (below(4) > 0) cuts.push_back({s, offset, static_cast<double>(below(30))});
    }
    const std::int64_t elements = offset + (below(2) == 0 ? 0 : 10);
    const auto parts = static_cast<std::size_t>(1 + below(4));
    const std::vector<std::size_t> first = balanced_cuts(seconds, elements, cuts, parts);
    const double best = least(seconds, elements, cuts, 0, 0, 0, 0, parts);
    ASSERT_EQ(first.empty(), best == std::numeric_limits<double>::infinity());
    EXPECT_EQ(first.empty(), parts > most_parts(elements, cuts) || elements == 0);
    if (first.empty()) continue;
    ASSERT_EQ(first.size(), parts);
    double longest = 0;
    for (std::size_t p = 0; p < parts; ++p) {
      const std::size_t end = p + 1 < parts ? first[p + 1] : seconds.size();
      double part = 0;
      for (std::size_t s = first[p]; s < end; ++s) part += seconds[s];
      for (const Cut& cut : cuts) {
        if ((p > 0 && cut.stage == first[p]) || (p + 1 < parts && cut.stage == end)) part += cut.seconds;
      }
      longest = std::max(longest, part);
    }
    EXPECT_DOUBLE_EQ(longest, best);
  }
}

TEST(Cuts, DivideParametersAndStatistics) {
  const Graph graph = make_model("resnet18-d2l", {1, 28, 28}, 10);
  const std::vector<Stage> stages = make_stages(graph, 2);
  const auto count = std::ssize(stages);
  Range parameters{0, 0};
  Range statistics{0, 0};
  std::int64_t begin = 0;
  for (const std::int64_t end : {count / 3, count / 2, count}) {
    const Range p = parameters_of(graph, stages, {begin, end});
    const Range s = statistics_of(graph, stages, {begin, end});
    EXPECT_EQ(p.begin, parameters.end);
    EXPECT_EQ(s.begin, statistics.end);
    for (std::int64_t stage = begin; stage < end; ++stage) {
      for (const int index : stages[static_cast<std::size_t>(stage)].parameters) {
        const Parameter& parameter = graph.parameters()[static_cast<std::size_t>(index)];
        EXPECT_GE(parameter.offset, p.begin);
        EXPECT_LE(parameter.offset + parameter.flat_elements(), p.end);
      }
    }
    parameters = p;
    statistics = s;
    begin = end;
  }
  EXPECT_EQ(parameters.end, graph.flat_elements());
  EXPECT_EQ(statistics.end, graph.statistic_count());
}

}  // namespace
}  // namespace ddp::cuts_tests
