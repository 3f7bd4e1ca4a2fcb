#include "model/elimination.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include "base/error.h"

namespace ddp {

void Elimination::add(std::vector<std::size_t> variables, std::vector<double> costs) {
  tables_.push_back({std::move(variables), std::move(costs)});
}

std::size_t Elimination::index_in(const std::vector<std::size_t>& variables,
                                  const std::vector<std::size_t>& assignment) const {
  std::size_t index = 0;
  for (const std::size_t variable : variables) index = index * choices_ + assignment[variable];
  return index;
}

std::vector<std::size_t> Elimination::neighbours_of(std::size_t variable) const {
  std::set<std::size_t> found;
  for (const Table& table : tables_) {
    if (std::find(table.variables.begin(), table.variables.end(), variable) == table.variables.end()) continue;
    found.insert(table.variables.begin(), table.variables.end());
  }
  found.erase(variable);
  return {found.begin(), found.end()};
}

Elimination::Decision Elimination::eliminate(std::size_t variable) {
  Decision decision{variable, neighbours_of(variable), {}};
  std::vector<Table> mine;
  const auto others = std::stable_partition(tables_.begin(), tables_.end(), [&](const Table& table) {
    return std::find(table.variables.begin(), table.variables.end(), variable) == table.variables.end();
  });
  std::move(others, tables_.end(), std::back_inserter(mine));
  tables_.erase(others, tables_.end());

  std::size_t combinations = 1;
  for (std::size_t i = 0; i < decision.given.size(); ++i) combinations *= choices_;
  Table reduced{decision.given, std::vector<double>(combinations)};
  decision.best.resize(combinations);
  std::vector<std::size_t> assignment(variables_, 0);
  for (std::size_t combination = 0; combination < combinations; ++combination) {
    std::size_t rest = combination;
    for (std::size_t i = decision.given.size(); i-- > 0; rest /= choices_) {
      assignment[decision.given[i]] = rest % choices_;
    }
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t choice = 0; choice < choices_; ++choice) {
      assignment[variable] = choice;
      double cost = 0;
      for (const Table& table : mine) cost += table.costs[index_in(table.variables, assignment)];
      if (cost < least) {
        least = cost;
        decision.best[combination] = choice;
      }
    }
    reduced.costs[combination] = least;
  }
  tables_.push_back(std::move(reduced));
  return decision;
}

Elimination::Best Elimination::minimize() {
  std::vector<Decision> decisions;
  std::vector<bool> done(variables_, false);
  for (std::size_t round = 0; round < variables_; ++round) {
    // The variable with the fewest neighbours keeps the tables small.
    std::size_t next = variables_;
    std::size_t fewest = variables_ + 2;
    for (std::size_t variable = 0; variable < variables_ && fewest > 1; ++variable) {
      if (done[variable]) continue;
      const std::size_t count = neighbours_of(variable).size();
      if (next == variables_ || count < fewest) {
        next = variable;
        fewest = count;
      }
    }
    done[next] = true;
    decisions.push_back(eliminate(next));
  }
  Best best{std::vector<std::size_t>(variables_, 0), 0};
  for (const Table& table : tables_) best.cost += table.costs.front();
  for (auto decision = decisions.rbegin(); decision != decisions.rend(); ++decision) {
    best.choices[decision->variable] = decision->best[index_in(decision->given, best.choices)];
  }
  return best;
}

}  // namespace ddp
