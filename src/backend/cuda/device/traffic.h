// Adds up the traffic of an operator's kernels (backend/traffic.h).
//
//   PassTraffic pass;
//   pass += kernel({x_bytes, weight_bytes}, {y_bytes});   // one kernel that reads two tensors and writes one
#pragma once

#include <initializer_list>
#include <numeric>

#include "backend/traffic.h"

namespace ddp::cuda {

inline PassTraffic kernel(std::initializer_list<double> read, std::initializer_list<double> written) {
  return {1, std::accumulate(read.begin(), read.end(), 0.0) + std::accumulate(written.begin(), written.end(), 0.0)};
}

}  // namespace ddp::cuda
