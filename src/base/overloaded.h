// A std::variant visitor composed of lambdas, one per alternative. A missing alternative is a compile-time error.
//
//   const std::variant<int, bool> value = 3;
//   const int n = std::visit(Overloaded{[](int i) { return i; }, [](bool b) { return b ? 1 : 0; }}, value);
//
// OneOf<A, B, C> auto& handles several named alternatives in one lambda; a new alternative is still a compile-time
// error.
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
