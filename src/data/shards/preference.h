// Which of several fields of a sample is read.
//
//   preference("cls", "", std::array{"cls"sv, "json"sv});   // 0: the first choice
//   preference("cls", "side.txt", {});                      // nothing: a user wants another one
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ddp {

// The rank of a field, 0 is best: only `wanted` if that is given, otherwise the position among the `known` ones.
inline std::optional<std::size_t> preference(std::string_view field, const std::string& wanted,
                                             std::span<const std::string_view> known) {
  if (!wanted.empty()) return field == wanted ? std::optional<std::size_t>(0) : std::nullopt;
  const auto found = std::find(known.begin(), known.end(), field);
  if (found == known.end()) return std::nullopt;
  return static_cast<std::size_t>(found - known.begin());
}

}  // namespace ddp
