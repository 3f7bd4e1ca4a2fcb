#include "commands/measure/stages.h"

#include <fmt/core.h>

#include <optional>

#include "train/stage_times.h"

namespace ddp {
namespace {

constexpr double kSeconds = 0.5;

}  // namespace

void print_stages(const Device& device, const Experiment& e) {
  const std::optional<DevicePeak> peak =
      device.gpu_module == nullptr ? std::optional(measure_cpu_peak()) : std::nullopt;
  const std::vector<StageTime> times =
      time_stages(*e.backend, *e.network, e.parameters(), e.graph.statistic_count(), kSeconds);
  fmt::print("{}\n", stage_table(times, peak));
}

}  // namespace ddp
