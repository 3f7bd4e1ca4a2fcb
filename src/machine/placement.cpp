#include "machine/placement.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/text/text.h"
#include "base/text/text_table.h"

namespace ddp {
namespace {

constexpr const char* kSharing =
    "--oversubscribe-gpus allows ranks to share a GPU (gradients are then reduced by MPI through host memory)";

void check_named_once(const std::vector<int>& named) {
  std::set<int> seen;
  for (const int gpu : named) {
    check(seen.insert(gpu).second, ExitCode::usage, "--gpus {} lists GPU {} twice; list each GPU once",
          fmt::join(named, ","), gpu);
  }
}

// The GPUs for ranks with this view, in order.
std::vector<GpuInfo> candidates(const RankView& view, int rank, const std::vector<int>& named) {
  if (named.empty()) return view.gpus;
  std::vector<GpuInfo> chosen;
  for (const int gpu : named) {
    check(static_cast<std::size_t>(gpu) < view.gpus.size(), ExitCode::usage,
          "--gpus {}: there is no GPU {} for rank {} on host {}, which sees {}, numbered from 0 in the order of "
          "CUDA_VISIBLE_DEVICES",
          fmt::join(named, ","), gpu, rank, view.host_name, counted(view.gpus.size(), "GPU"));
    chosen.push_back(view.gpus[static_cast<std::size_t>(gpu)]);
  }
  return chosen;
}

// Ranks of a host that choose from the same GPUs in the same order.
struct Group {
  std::vector<GpuInfo> gpus;
  std::vector<int> ranks;
};

std::vector<Group> group_ranks(std::span<const RankView> views, int host, const std::vector<int>& named) {
  std::vector<Group> groups;
  const auto same_gpus = [](const std::vector<GpuInfo>& a, const std::vector<GpuInfo>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const GpuInfo& x, const GpuInfo& y) { return x.pci_id == y.pci_id; });
  };
  for (std::size_t rank = 0; rank < views.size(); ++rank) {
    if (views[rank].host != host) continue;
    std::vector<GpuInfo> gpus = candidates(views[rank], static_cast<int>(rank), named);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return same_gpus(g.gpus, gpus); });
    if (group == groups.end()) group = groups.insert(groups.end(), Group{std::move(gpus), {}});
    group->ranks.push_back(static_cast<int>(rank));
  }
  return groups;
}

// Assigns the GPUs of a group to its ranks one by one, starting again from the first if there are more ranks.
void share_out(const Group& group, const std::string& host_name, const DeviceOptions& options, Placement& placement) {
  const std::size_t ranks = group.ranks.size();
  const std::size_t gpus = group.gpus.size();
  if (ranks > gpus && !options.oversubscribe_gpus) {
    const std::string problem = options.gpus.empty()
                                    ? fmt::format("{} ranks on host {} see {}", ranks, host_name, counted(gpus, "GPU"))
                                    : fmt::format("--gpus {} lists {} for {} ranks on host {}",
                                                  fmt::join(options.gpus, ","), counted(gpus, "GPU"), ranks, host_name);
    throw Error(
        ExitCode::preflight,
        fmt::format("{}: ranks {} and {} would share the GPU at {}; start {} there, or use --device cpu; {}", problem,
                    group.ranks[0], group.ranks[gpus], group.gpus[0].pci_id, counted(gpus, "rank"), kSharing));
  }
  for (std::size_t i = 0; i < group.ranks.size(); ++i) {
    placement.gpus[static_cast<std::size_t>(group.ranks[i])] = group.gpus[i % group.gpus.size()];
  }
}

// Whether ranks of this host share a GPU; an error unless that was requested.
bool find_shared(std::span<const RankView> views, int host, bool allowed, const std::vector<GpuInfo>& gpus) {
  std::map<std::string, std::size_t> owners;
  bool shared = false;
  for (std::size_t rank = 0; rank < views.size(); ++rank) {
    if (views[rank].host != host) continue;
    const auto [owner, first] = owners.try_emplace(gpus[rank].pci_id, rank);
    check(
        first || allowed, ExitCode::preflight,
        "ranks {} and {} on host {} would both use the GPU at {} ({}); make a different GPU visible to each rank, with "
        "CUDA_VISIBLE_DEVICES or Slurm's --gpus-per-task=1; {}",
        owner->second, rank, views[rank].host_name, gpus[rank].pci_id, gpus[rank].name, kSharing);
    shared = shared || !first;
  }
  return shared;
}

}  // namespace

Placement place_ranks(std::span<const RankView> views, const DeviceOptions& options) {
  DDP_ASSERT(first_without_gpu(views) == -1);
  check_named_once(options.gpus);
  Placement placement;
  placement.gpus.resize(views.size());
  std::map<int, std::string> hosts;
  for (const RankView& view : views) hosts.emplace(view.host, view.host_name);
  for (const auto& [host, name] : hosts) {
    for (const Group& group : group_ranks(views, host, options.gpus)) share_out(group, name, options, placement);
    const bool shared = find_shared(views, host, options.oversubscribe_gpus, placement.gpus);
    placement.shared = placement.shared || shared;
  }
  return placement;
}

std::string allocated_gpus(const Environment& environment, const DeviceOptions& options) {
  if (!options.gpus.empty()) return fmt::format("--gpus {}", fmt::join(options.gpus, ","));
  const std::optional<std::string> visible = environment("CUDA_VISIBLE_DEVICES");
  // An empty or negative value hides all GPUs; Slurm writes NoDevFiles if it allocated none.
  if (visible && (visible->empty() || visible->starts_with('-') || *visible == "NoDevFiles")) return "";
  if (visible) return "CUDA_VISIBLE_DEVICES=" + *visible;
  for (const char* name : {"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"}) {
    const std::string value = environment(name).value_or("");
    if (!value.empty()) return fmt::format("{}={}", name, value);
  }
  return "";
}

std::string idle_gpus(std::span<const RankView> views, std::span<const GpuInfo> gpus) {
  std::map<int, std::map<std::string, std::string>> idle;  // by host and address
  std::map<int, std::size_t> allocated;
  std::map<int, std::string> names;
  for (const RankView& view : views) {
    if (view.allocated.empty()) continue;
    names[view.host] = view.host_name;
    for (const GpuInfo& gpu : view.gpus) {
      idle[view.host][gpu.pci_id] = fmt::format("{} {} at {}", gpu.ordinal, gpu.name, gpu.pci_id);
    }
  }
  for (const auto& [host, all] : idle) allocated[host] = all.size();
  for (std::size_t rank = 0; rank < views.size(); ++rank) {
    if (const auto host = idle.find(views[rank].host); host != idle.end()) host->second.erase(gpus[rank].pci_id);
  }
  std::vector<std::string> texts;
  for (const auto& [host, left] : idle) {
    if (left.empty()) continue;
    std::vector<std::string> words;
    for (const auto& [address, text] : left) words.push_back(text);
    texts.push_back(fmt::format("host {}: {} of {} ({})", names[host], left.size(), counted(allocated[host], "GPU"),
                                fmt::join(words, ", ")));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

int first_without_gpu(std::span<const RankView> views) {
  const auto found = std::find_if(views.begin(), views.end(), [](const RankView& view) { return view.gpus.empty(); });
  return found == views.end() ? -1 : static_cast<int>(found - views.begin());
}

std::string placement_table(std::span<const RankView> views, std::span<const GpuInfo> gpus) {
  std::vector<std::vector<std::string>> rows = {
      {"rank", "host", "GPU", "PCI address", "NUMA node", "driver", "memory"}};
  for (std::size_t rank = 0; rank < views.size(); ++rank) {
    std::vector<std::string> row = {std::to_string(rank), views[rank].host_name};
    if (gpus.empty()) {
      row.insert(row.end(), {"CPU", kUnknownCell, kUnknownCell, kUnknownCell, kUnknownCell});
    } else {
      const GpuInfo& gpu = gpus[rank];
      const std::string& driver = views[rank].driver;
      row.insert(row.end(), {fmt::format("{} {}", gpu.ordinal, gpu.name), gpu.pci_id,
                             gpu.numa_node < 0 ? kUnknownCell : std::to_string(gpu.numa_node),
                             driver.empty() ? kUnknownCell : driver, format_bytes(gpu.total_bytes)});
    }
    rows.push_back(std::move(row));
  }
  return text_table(
      rows, std::vector{Align::right, Align::left, Align::left, Align::left, Align::right, Align::left, Align::right});
}

}  // namespace ddp
