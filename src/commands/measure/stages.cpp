#include "commands/measure/stages.h"

#include <fmt/core.h>

#include <optional>

#include "base/output.h"
#include "train/parallel/stage_times.h"

namespace ddp {
namespace {

constexpr double kSeconds = 0.5;

}  // namespace

void print_stages(const PreparedRun& prepared) {
  const std::optional<DevicePeak> peak = prepared.job.on_gpu() ? std::nullopt : std::optional(measure_cpu_peak());
  const std::vector<StageTime> times =
      time_stages(*prepared.backend, *prepared.engine.network, prepared.state.parameters(),
                  prepared.inputs.graph.statistic_count(), kSeconds);
  print_text("{}\n", stage_table(times, peak));
}

}  // namespace ddp
