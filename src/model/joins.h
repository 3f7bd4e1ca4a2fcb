// Stages that one operator of the backend can compute (OpJoiner::join()).
//
//   const std::size_t count = joined_stages(backend.ops(), stages, 0, Layout::lanes16);            // 1: none
//   const std::size_t fewer = joined_stages(backend.ops(), stages, 0, Layout::lanes16, count - 1);
#pragma once

#include <cstddef>
#include <vector>

#include "backend/op_joiner.h"
#include "model/stages.h"

namespace ddp {

inline constexpr std::size_t kMostJoined = 5;

// How many stages from `first` on one operator computes in a layout: the most, but not more than `most`, for which there is one; 1
// if there is none.
std::size_t joined_stages(OpJoiner& ops, const std::vector<Stage>& stages, std::size_t first, Layout layout,
                          std::size_t most = kMostJoined);

// The specs of so many stages from `first` on.
std::vector<OpSpec> specs_of(const std::vector<Stage>& stages, std::size_t first, std::size_t count);

}  // namespace ddp
