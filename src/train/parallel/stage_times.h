// How fast each stage of a network is, forward and backward.
//
//   const std::vector<StageTime> times = time_stages(backend, network, parameters, graph.statistic_count(), 0.5);
//   fmt::print("{}", stage_table(times, measure_cpu_peak()));
//
// Passes over random images are timed stage by stage. They change no weights and no running statistics.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/network.h"

namespace ddp {

struct StageTime {
  StageWork work;
  double forward_seconds = 0;
  double backward_seconds = 0;
};

// The fewest seconds of each stage in passes that take at least `seconds` together; at least two, after a first one.
// `statistics` is the number of running statistics, for which scratch memory is taken.
std::vector<StageTime> time_stages(Backend& backend, Network& network, const float* parameters, std::int64_t statistics,
                                   double seconds);

// Milliseconds, GFLOP/s and GB/s of each stage and direction. With a peak, their share of it: of the multiply-adds for
// stages that have them, otherwise of the bytes.
std::string stage_table(const std::vector<StageTime>& times, const std::optional<DevicePeak>& peak);

}  // namespace ddp
