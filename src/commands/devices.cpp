// ddp_train devices: what the GPUs of this machine are doing, as nvidia-smi shows it.
#include <fmt/core.h>

#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "base/text.h"
#include "base/text_table.h"
#include "commands/commands.h"
#include "job/launcher.h"
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

std::string card_table(const std::vector<CardStatus>& cards) {
  using MemoryUse = CardStatus::MemoryUse;
  std::vector<std::vector<std::string>> rows = {
      {"GPU", "name", "PCI address", "memory used", "free", "load", "temperature", "clocks limited by", "processes"}};
  for (const CardStatus& card : cards) {
    rows.push_back({std::to_string(card.index), known(card.name), known(card.pci_id),
                    known(card.memory, [](const MemoryUse& m) { return format_bytes(m.used); }),
                    known(card.memory, [](const MemoryUse& m) { return format_bytes(m.free); }),
                    known(card.utilisation, [](unsigned percent) { return fmt::format("{} %", percent); }),
                    known(card.temperature, [](unsigned degrees) { return fmt::format("{} °C", degrees); }),
                    known(card.throttling, words_text),
                    known(card.processes, [](const auto& all) { return std::to_string(all.size()); })});
  }
  constexpr auto kLeft = Align::left;
  constexpr auto kRight = Align::right;
  return text_table(rows, std::vector{kRight, kLeft, kLeft, kRight, kRight, kRight, kRight, kLeft, kRight});
}

// Empty if no GPU reports a process.
std::string process_table(const std::vector<CardStatus>& cards) {
  std::vector<std::vector<std::string>> rows = {{"GPU", "process", "memory", "program"}};
  for (const CardStatus& card : cards) {
    for (const CardProcess& process : card.processes.value_or(std::vector<CardProcess>())) {
      rows.push_back({std::to_string(card.index), std::to_string(process.pid), known(process.bytes, format_bytes),
                      process.name.empty() ? kUnknownCell : process.name});
    }
  }
  if (rows.size() == 1) return "";
  return "\n" + text_table(rows, std::vector{Align::right, Align::right, Align::right, Align::left});
}

std::string cpu_text() {
  const std::size_t cores = physical_cores(available_cpus(process_environment())).size();
  return fmt::format("{}, {}", counted(cores, "core"), make_cpu_backend()->ops().description());
}

std::string device_text() {
  const std::string cpu = cpu_text();
  try {
    const Nvml nvml;
    const std::vector<CardStatus> cards = nvml.cards();
    check(!cards.empty(), ExitCode::preflight, "the NVIDIA driver reports no GPU");
    return fmt::format("NVIDIA driver {}; {}\n\n{}{}", nvml.driver_version().value_or("of unknown version"), cpu,
                       card_table(cards), process_table(cards));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}; available: CPU, {}", error.what(), cpu));
  }
}

}  // namespace

int run_devices(const MpiSession& session, const Options& /*options*/) {
  const std::string text = together(session, device_text);
  if (session.rank() == 0) fmt::print("{}", text);
  return static_cast<int>(ExitCode::done);
}

}  // namespace ddp
