// A visitor of a std::variant made of lambdas, one for each alternative. A missing one is an error of the compiler.
//
//   const std::variant<int, bool> value = 3;
//   const int n = std::visit(Overloaded{[](int i) { return i; }, [](bool b) { return b ? 1 : 0; }}, value);
//
// OneOf<A, B, C> auto& takes several alternatives in one lambda, by name, so that a new one still is an error.
#pragma once

#include <type_traits>
#include <variant>

namespace ddp {

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

template <class T, class... Alternatives>
concept OneOf = (std::is_same_v<std::remove_cv_t<T>, Alternatives> || ...);

}  // namespace ddp
