#include "model/elimination.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace ddp {
namespace {

struct Cost {
  std::vector<std::size_t> variables;
  std::vector<double> costs;
};

double total(const std::vector<Cost>& costs, const std::vector<std::size_t>& choices, std::size_t count) {
  double sum = 0;
  for (const Cost& cost : costs) {
    std::size_t index = 0;
    for (const std::size_t variable : cost.variables) index = index * count + choices[variable];
    sum += cost.costs[index];
  }
  return sum;
}

// Tries all assignments.
double least_by_trying(const std::vector<Cost>& costs, std::size_t variables, std::size_t count) {
  double least = std::numeric_limits<double>::infinity();
  std::vector<std::size_t> choices(variables, 0);
  for (;;) {
    least = std::min(least, total(costs, choices, count));
    std::size_t at = 0;
    while (at < variables && ++choices[at] == count) choices[at++] = 0;
    if (at == variables) return least;
  }
}

TEST(Elimination, FindsTheLeastOfAll) {
  std::mt19937_64 engine{std::random_device{}()};
  const auto draw = [&](std::size_t bound) { return static_cast<std::size_t>(engine() % bound); };
  for (int round = 0; round < 200; ++round) {
    const std::size_t variables = 1 + draw(7);
    const std::size_t count = 2 + draw(2);
    std::vector<Cost> costs;
    const auto random_costs = [&](std::size_t size) {
      std::vector<double> values(size);
      // Small integers make sums exact and produce many ties. One assignment in eight is forbidden.
      for (double& value : values) {
        value = draw(8) == 0 ? std::numeric_limits<double>::infinity() : static_cast<double>(draw(10));
      }
      return values;
    };
    for (std::size_t v = 0; v < variables; ++v) {
      costs.push_back({{v}, random_costs(count)});
      if (v == 0) continue;
      costs.push_back({{v - 1, v}, random_costs(count * count)});
      if (draw(2) == 0) costs.push_back({{draw(v), v}, random_costs(count * count)});
    }
    Elimination problem(variables, count);
    for (const Cost& cost : costs) problem.add(cost.variables, cost.costs);
    const Elimination::Best best = problem.minimize();
    const double least = least_by_trying(costs, variables, count);
    EXPECT_EQ(best.cost, least);
    if (std::isfinite(least)) {
      EXPECT_EQ(total(costs, best.choices, count), least);
    }
  }
}

}  // namespace
}  // namespace ddp
