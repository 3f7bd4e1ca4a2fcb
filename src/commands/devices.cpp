// ddp_train devices: what the GPUs of this machine are doing, as nvidia-smi shows it.
#include <fmt/core.h>

#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "base/output.h"
#include "base/text/text.h"
#include "base/text/text_table.h"
#include "commands/commands.h"
#include "job/launch/launcher.h"
#include "job/report.h"
#include "machine/binding.h"
#include "machine/cores.h"
#include "machine/nvml.h"

namespace ddp {
namespace {

template <class T, class Text>
std::string known(const std::optional<T>& value, Text&& text) {
  return value ? std::string(text(*value)) : kUnknownCell;
}
std::string known(const std::optional<std::string>& value) { return value.value_or(kUnknownCell); }

std::string words_text(const std::vector<std::string>& words) { return words.empty() ? "no" : join(words); }

std::string gpu_table(const std::vector<GpuStatus>& gpus) {
  using MemoryUse = GpuStatus::MemoryUse;
  std::vector<std::vector<std::string>> rows = {
      {"GPU", "name", "PCI address", "memory used", "free", "load", "temperature", "clocks limited by", "processes"}};
  for (const GpuStatus& gpu : gpus) {
    rows.push_back({std::to_string(gpu.index), known(gpu.name), known(gpu.pci_id),
                    known(gpu.memory, [](const MemoryUse& m) { return format_bytes(m.used); }),
                    known(gpu.memory, [](const MemoryUse& m) { return format_bytes(m.free); }),
                    known(gpu.utilisation, [](unsigned percent) { return fmt::format("{} %", percent); }),
                    known(gpu.temperature, [](unsigned degrees) { return fmt::format("{} °C", degrees); }),
                    known(gpu.throttling, words_text),
                    known(gpu.processes, [](const auto& all) { return std::to_string(all.size()); })});
  }
  constexpr auto kLeft = Align::left;
  constexpr auto kRight = Align::right;
  return text_table(rows, std::vector{kRight, kLeft, kLeft, kRight, kRight, kRight, kRight, kLeft, kRight});
}

// Empty if no GPU reports a process.
std::string process_table(const std::vector<GpuStatus>& gpus) {
  std::vector<std::vector<std::string>> rows = {{"GPU", "process", "memory", "program"}};
  for (const GpuStatus& gpu : gpus) {
    for (const GpuProcess& process : gpu.processes.value_or(std::vector<GpuProcess>())) {
      rows.push_back({std::to_string(gpu.index), std::to_string(process.pid), known(process.bytes, format_bytes),
                      process.name.empty() ? kUnknownCell : process.name});
    }
  }
  if (rows.size() == 1) return "";
  return "\n" + text_table(rows, std::vector{Align::right, Align::right, Align::right, Align::left});
}

std::string cpu_text() {
  const std::size_t cores = physical_cores(available_cpus(process_environment())).size();
  return fmt::format("{}, {}", counted(cores, "core"), make_cpu_backend()->ops().traits().description);
}

std::string device_text() {
  const std::string cpu = cpu_text();
  try {
    const Nvml nvml;
    const std::vector<GpuStatus> gpus = nvml.gpus();
    check(!gpus.empty(), ExitCode::preflight, "the NVIDIA driver reports no GPU");
    return fmt::format("NVIDIA driver {}; {}\n\n{}{}", nvml.driver_version().value_or("of unknown version"), cpu,
                       gpu_table(gpus), process_table(gpus));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}; available: CPU, {}", error.what(), cpu));
  }
}

}  // namespace

int run_devices(const MpiSession& session, const Options& /*options*/) {
  const std::string text = together(session, device_text);
  if (session.rank() == 0) print_text("{}", text);
  return static_cast<int>(ExitCode::done);
}

}  // namespace ddp
