// Exact minimisation of a sum of costs over a few choices per variable, where each cost depends on one or two
// variables: variable elimination (Bertele and Brioschi, "Nonserial Dynamic Programming", 1972). The work grows with
// the width of the graph, which is 1 for a chain and 2 for a residual network, not with its length.
//
//   Elimination problem(/*variables=*/3, /*choices=*/2);
//   problem.add({0}, {0.0, 5.0});                  // cost of variable 0 for each choice
//   problem.add({0, 1}, {0.0, 1.0, 1.0, 0.0});     // [choice of 0][choice of 1]
//   Elimination::Best best = problem.minimize();   // best.choices[0] == 0, best.cost
#pragma once

#include <cstddef>
#include <vector>

namespace ddp {

class Elimination {
 public:
  Elimination(std::size_t variables, std::size_t choices) : variables_(variables), choices_(choices) {}

  // A cost table over distinct variables, with the choice of the last one varying fastest; infinity forbids a
  // combination.
  void add(std::vector<std::size_t> variables, std::vector<double> costs);

  struct Best {
    std::vector<std::size_t> choices;
    double cost = 0;  // infinite if no combination is allowed
  };
  // Ties are resolved in favour of the first choice of the variables eliminated last. Consumes the costs.
  Best minimize();

 private:
  struct Table {
    std::vector<std::size_t> variables;
    std::vector<double> costs;
  };
  // The best choice of an eliminated variable for each combination of the variables that it depends on.
  struct Decision {
    std::size_t variable = 0;
    std::vector<std::size_t> given;
    std::vector<std::size_t> best;
  };

  std::size_t index_in(const std::vector<std::size_t>& variables, const std::vector<std::size_t>& assignment) const;
  std::vector<std::size_t> neighbours_of(std::size_t variable) const;
  Decision eliminate(std::size_t variable);

  std::size_t variables_;
  std::size_t choices_;
  std::vector<Table> tables_;
};

}  // namespace ddp
