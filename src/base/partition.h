// The rule by which a range is split into consecutive parts: sizes differ by at most one, larger first. It splits
// the global batch into logical shards and the shards among the ranks.
//
//   part(10, 4, 0);   // {0, 3}
//   part(10, 4, 1);   // {3, 6}
//   part(10, 4, 3);   // {8, 10}
//
// --balance on gives the parts of the shards sizes of its own:
//
//   const std::vector<std::int64_t> sizes = {4, 3, 2, 1};
//   part(10, 4, 1, sizes);   // {4, 7}
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"

namespace ddp {

// The items begin, begin + 1, ..., end - 1.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  constexpr std::int64_t size() const { return end - begin; }
  friend constexpr bool operator==(const Range&, const Range&) = default;
};

// Part `index` of `parts` of the items 0, ..., total - 1. Some parts are empty if total < parts.
constexpr Range part(std::int64_t total, std::int64_t parts, std::int64_t index) {
  DDP_ASSERT(total >= 0 && index >= 0 && index < parts);
  const std::int64_t quotient = total / parts;
  const std::int64_t remainder = total % parts;
  const std::int64_t begin = index * quotient + std::min(index, remainder);
  return {begin, begin + quotient + (index < remainder ? 1 : 0)};
}

// The same with these sizes of all parts; if there are none, sizes that differ by at most one.
constexpr Range part(std::int64_t total, std::int64_t parts, std::int64_t index, std::span<const std::int64_t> sizes) {
  if (sizes.empty()) return part(total, parts, index);
  DDP_ASSERT(static_cast<std::int64_t>(sizes.size()) == parts && index >= 0 && index < parts);
  std::int64_t begin = 0;
  for (std::int64_t before = 0; before < index; ++before) begin += sizes[static_cast<std::size_t>(before)];
  const std::int64_t end = begin + sizes[static_cast<std::size_t>(index)];
  DDP_ASSERT(end <= total);
  return {begin, end};
}

// The index of the part that contains item `position`: the inverse of part().
constexpr std::int64_t part_holding(std::int64_t total, std::int64_t parts, std::int64_t position) {
  DDP_ASSERT(parts > 0 && position >= 0 && position < total);
  const std::int64_t quotient = total / parts;
  const std::int64_t remainder = total % parts;
  const std::int64_t in_larger_parts = remainder * (quotient + 1);
  if (position < in_larger_parts) return position / (quotient + 1);
  return remainder + (position - in_larger_parts) / quotient;
}

}  // namespace ddp
