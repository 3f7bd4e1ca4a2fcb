#include "machine/device.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "base/log.h"
#include "base/output.h"
#include "base/text/text.h"
#include "job/joint_error.h"
#include "machine/nvml.h"

namespace ddp {
namespace {

// For users who want to know what they need before they have a GPU.
constexpr const char* kPlanWithoutGpu =
    "; to plan without a GPU, describe one: --gpu-description configs/gpus/h100.json";

// The view of a rank is sent as lines: code, trouble, driver and the source of its GPU allocation; then one line per
// GPU with tab-separated fields.

std::string plain(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
  return text;
}

std::string to_text(const RankView& view) {
  std::string text = fmt::format("{}\t{}\t{}\t{}\n", static_cast<int>(view.trouble_code), plain(view.trouble),
                                 plain(view.driver), plain(view.allocated));
  for (const GpuInfo& gpu : view.gpus) {
    text += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\n", gpu.ordinal, plain(gpu.name), plain(gpu.pci_id), gpu.numa_node,
                        gpu.major, gpu.minor, gpu.total_bytes);
  }
  return text;
}

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t tab = line.find('\t', begin);
    fields.push_back(line.substr(begin, tab - begin));
    if (tab == std::string::npos) return fields;
    begin = tab + 1;
  }
}

template <class T>
T number(const std::string& text) {
  T value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  DDP_ASSERT(error == std::errc() && stop == text.data() + text.size());
  return value;
}

RankView from_text(const std::string& text, const Topology::RankHost& place) {
  RankView view;
  view.host = place.host;
  view.host_name = place.host_name;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  const std::vector<std::string> head = split(line);
  DDP_ASSERT(head.size() == 4);
  view.trouble_code = static_cast<ExitCode>(number<int>(head[0]));
  view.trouble = head[1];
  view.driver = head[2];
  view.allocated = head[3];
  while (std::getline(lines, line)) {
    const std::vector<std::string> fields = split(line);
    DDP_ASSERT(fields.size() == 7);
    view.gpus.push_back({.ordinal = number<int>(fields[0]),
                         .name = fields[1],
                         .pci_id = fields[2],
                         .numa_node = number<int>(fields[3]),
                         .major = number<int>(fields[4]),
                         .minor = number<int>(fields[5]),
                         .total_bytes = number<std::size_t>(fields[6])});
  }
  return view;
}

// The view of this rank. Any error is sent to the other ranks, which would otherwise wait for this one.
RankView look(std::shared_ptr<GpuModule>& module, const GpuModuleOpener& open, bool with_driver) {
  RankView view;
  try {
    module = open();
    view.gpus = module->visible();
    if (view.gpus.empty()) view.trouble = "no GPU is visible";
    if (with_driver) view.driver = driver_version();
  } catch (const Error& error) {
    view.trouble_code = error.code();
    view.trouble = error.what();
  } catch (const std::bad_alloc&) {
    view.trouble_code = ExitCode::out_of_memory;
    view.trouble = "out of memory";
  } catch (const std::exception& error) {
    view.trouble_code = ExitCode::internal;
    view.trouble = fmt::format("internal error: {}; please report it", error.what());
  }
  if (!view.trouble.empty()) view.gpus.clear();
  return view;
}

// The trouble of this rank, with rank and host unless all ranks have the same.
std::string trouble_of(const std::vector<RankView>& views, int rank) {
  const RankView& view = views[static_cast<std::size_t>(rank)];
  const bool same =
      std::all_of(views.begin(), views.end(), [&](const RankView& other) { return other.trouble == view.trouble; });
  return same ? view.trouble : fmt::format("rank {} on host {}: {}", rank, view.host_name, view.trouble);
}

std::string sharing_note(const Placement& placement, std::span<const RankView> views) {
  std::set<std::pair<int, std::string>> gpus;
  for (std::size_t rank = 0; rank < views.size(); ++rank) gpus.emplace(views[rank].host, placement.gpus[rank].pci_id);
  if (views.size() == 1) return fmt::format("the GPU at {}", placement.gpus[0].pci_id);
  if (!placement.shared) return fmt::format("{} GPUs, one per rank", gpus.size());
  return fmt::format("{} ranks share {}, gradients are reduced by MPI through host memory", views.size(),
                     counted(gpus.size(), "GPU"));
}

// The same on all ranks, computed from the views of all ranks. Queries the driver each time; after one failure it is
// not queried again.
std::function<std::optional<std::size_t>()> memory_counter(const std::string& pci_id) {
  return [pci_id, nvml = std::shared_ptr<Nvml>(), silent = false]() mutable -> std::optional<std::size_t> {
    if (silent) return std::nullopt;
    try {
      if (nvml == nullptr) nvml = std::make_shared<Nvml>();
      const std::optional<std::uint64_t> bytes = process_bytes(*nvml, pci_id, static_cast<unsigned>(getpid()));
      silent = !bytes;
      return bytes;
    } catch (const Error&) {
      silent = true;
      return std::nullopt;
    }
  };
}

void decide(Device& device, int rank, const Options& options) {
  const int lacking = first_without_gpu(device.views);
  if (lacking >= 0) {
    const RankView& view = device.views[static_cast<std::size_t>(lacking)];
    // Only the absence of a usable GPU leads to the CPU; a defective GPU is an error.
    const bool fall_back = options.device.device == DeviceChoice::automatic && view.trouble_code == ExitCode::preflight;
    const std::string trouble = trouble_of(device.views, lacking);
    if (!fall_back) {
      const bool could_plan = options.command == "plan" && view.trouble_code == ExitCode::preflight;
      throw Error(view.trouble_code, fmt::format("--device {}: {}{}", to_string(options.device.device), trouble,
                                                 could_plan ? kPlanWithoutGpu : ""));
    }
    const auto given = std::find_if(device.views.begin(), device.views.end(),
                                    [](const RankView& other) { return !other.allocated.empty(); });
    check(given == device.views.end(), ExitCode::preflight,
          "--device auto: GPUs were allocated ({}), but {}; fix this, or use --device cpu to leave them idle",
          given == device.views.end() ? "" : given->allocated, trouble);
    // The remedy after the semicolon is for those who want a GPU.
    device.note = "no GPU: " + trouble.substr(0, trouble.find(';'));
    const bool mixed = std::any_of(device.views.begin(), device.views.end(),
                                   [](const RankView& other) { return !other.gpus.empty(); });
    if (mixed && rank == 0) log_warning("all ranks use the CPU although some have a GPU: {}", trouble);
    return;
  }
  const Placement placement = place_ranks(device.views, options.device);
  device.gpus = placement.gpus;
  device.through_host = placement.shared;
  device.note = sharing_note(placement, device.views);
  const std::string idle = idle_gpus(device.views, device.gpus);
  if (rank == 0 && options.device.gpus.empty() && !idle.empty()) {
    log_warning("allocated GPUs are idle on {}; start one rank per GPU", idle);
  }
  device.config = {.ordinal = placement.gpus[static_cast<std::size_t>(rank)].ordinal,
                   .precision = options.model.precision,
                   .deterministic = options.optimizer.deterministic,
                   .memory_fraction = options.device.gpu_memory_fraction,
                   .memory_limit = options.device.gpu_memory_limit,
                   .process_bytes = memory_counter(placement.gpus[static_cast<std::size_t>(rank)].pci_id)};
}

}  // namespace

Device choose_device(Communicator& ranks, const Topology& topology, const Options& options,
                     const GpuModuleOpener& open) {
  Device device;
  device.config.precision = options.model.precision;
  const auto alike = [&](const auto& decision) {
    try {
      decision();
    } catch (const Error& error) {
      throw JointError(error.code(), error.what(), ranks.rank() == 0);
    }
  };
  if (options.device.device == DeviceChoice::cpu) {
    for (const Topology::RankHost& place : topology.ranks) device.views.push_back(from_text("0\t\t\t\n", place));
  } else {
    RankView mine = look(device.gpu_module, open, options.device.log_placement);
    mine.allocated = allocated_gpus(process_environment(), options.device);
    const std::vector<std::string> texts = ranks.all_gather_text(to_text(mine), "the exchange of the ranks' GPUs");
    DDP_ASSERT(texts.size() == topology.ranks.size());
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      device.views.push_back(from_text(texts[rank], topology.ranks[rank]));
    }
    alike([&] { decide(device, ranks.rank(), options); });
    if (device.gpus.empty()) device.gpu_module.reset();
  }
  if (options.device.log_placement && ranks.rank() == 0) {
    print_text("{}\n", placement_table(device.views, device.gpus));
  }
  return device;
}

}  // namespace ddp
