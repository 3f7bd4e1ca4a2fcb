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

inline constexpr std::size_t kMostJoined = 3;

// Length of the longest run of stages from `first`, at most `most`, that one operator can compute in a layout; 1 if there is none.
std::size_t joined_stages(OpJoiner& ops, const std::vector<Stage>& stages, std::size_t first, Layout layout,
                          std::size_t most = kMostJoined);

// The specs of `count` stages from `first` on.
std::vector<OpSpec> specs_of(const std::vector<Stage>& stages, std::size_t first, std::size_t count);

}  // namespace ddp
