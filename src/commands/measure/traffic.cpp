#include "commands/measure/traffic.h"

#include <fmt/core.h>

#include <string>
#include <utility>
#include <vector>

#include "base/output.h"
#include "base/text/text_table.h"
#include "optim/optimizer.h"

namespace ddp {
namespace {

// The stages' work, and what a step does besides: reading the images, the loss, and the update with its check for values
// that are not finite.
std::vector<StageWork> work_of_step(const Options& options, Backend& backend, Network& network) {
  const auto batch = static_cast<double>(network.batch());
  const auto element = static_cast<double>(bytes_of(backend.ops().traits().activation_element));
  const double pixels = batch * static_cast<double>(network.image_elements());
  const double logits = batch * static_cast<double>(network.classes()) * element;
  const double flat = static_cast<double>(network.flat_elements()) * sizeof(float);
  const UpdateSettings update = update_settings(options.optimizer);
  const auto states = static_cast<double>(state_buffers(update));
  // The numbers of some steps are computed first.
  const bool numbers = update.clip_norm > 0 || update.is_adam();
  std::vector<StageWork> all;
  const auto add = [&](const char* name, const OpTraffic& traffic) {
    StageWork work;
    work.name = work.kind = name;
    work.traffic = traffic;
    all.push_back(std::move(work));
  };
  add("input", {{1, pixels + pixels * element}, {}});
  for (StageWork& stage : network.work()) all.push_back(std::move(stage));
  add("loss", {{all.back().traffic.with_loss ? 0 : 1, 2 * logits}, {}});
  // The gradient is read for the check and for the update; weights and state are read and written.
  add("update", {{}, {numbers ? 3 : 2, (2 + 2 * (1 + states)) * flat}});
  return all;
}

std::vector<std::string> row_of(const StageWork& work) {
  const auto cells = [](const PassTraffic& pass, double flops) {
    return std::vector<std::string>{fmt::format("{}", pass.kernels), fmt::format("{:.1f}", pass.bytes / 1e6),
                                    fmt::format("{:.2f}", flops / 1e9)};
  };
  std::vector<std::string> row = {work.name, work.kind};
  for (std::string& cell : cells(work.traffic.forward, work.forward_flops)) row.push_back(std::move(cell));
  for (std::string& cell : cells(work.traffic.backward, work.backward_flops)) row.push_back(std::move(cell));
  return row;
}

}  // namespace

void print_traffic(const Options& options, Backend& backend, Network& network) {
  std::vector<std::vector<std::string>> rows = {
      {"stage", "kind", "forward kernels", "MB", "GFLOP", "backward kernels", "MB", "GFLOP"}};
  StageWork sum;
  sum.name = "sum";
  for (const StageWork& work : work_of_step(options, backend, network)) {
    rows.push_back(row_of(work));
    sum.traffic.forward += work.traffic.forward;
    sum.traffic.backward += work.traffic.backward;
    sum.forward_flops += work.forward_flops;
    sum.backward_flops += work.backward_flops;
  }
  rows.push_back(row_of(sum));
  constexpr Align kRight = Align::right;
  const std::vector<Align> columns = {Align::left, Align::left, kRight, kRight, kRight, kRight, kRight, kRight};
  print_text("{}\n", text_table(rows, columns));
}

}  // namespace ddp
