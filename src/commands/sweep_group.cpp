#include "commands/sweep_group.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/text/text.h"
#include "job/report.h"
#include "machine/binding.h"
#include "machine/nvml.h"

namespace ddp {
namespace {

using Json = nlohmann::json;

// The ordinals of the GPUs that this rank sees, or --gpus; empty: the trials use the CPU.
std::vector<int> visible_gpus(const Options& options) {
  if (options.device.device == DeviceChoice::cpu) return {};
  std::size_t count = 0;
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr) {
    const std::string_view text = visible;
    count = text.empty() ? 0 : static_cast<std::size_t>(std::count(text.begin(), text.end(), ',')) + 1;
  } else {
    try {
      count = Nvml().gpus().size();
    } catch (const Error&) {
      return {};  // no driver
    }
  }
  if (count > 0 && !options.device.gpus.empty()) return options.device.gpus;
  std::vector<int> gpus(count);
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

// What a rank tells the others about itself.
struct Place {
  std::vector<int> cpus;
  std::string visible;  // CUDA_VISIBLE_DEVICES
};

std::vector<Place> gather_places(Communicator& ranks, const Binding& binding) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const Json mine = {format_cpus(binding.cpus), visible == nullptr ? "" : visible};
  std::vector<Place> places;
  for (const std::string& text : ranks.all_gather_text(mine.dump(), "places of the ranks")) {
    const Json json = Json::parse(text);
    places.push_back({parse_cpus(json[0].get<std::string>()), json[1].get<std::string>()});
  }
  return places;
}

// The GPUs of the group that begins with local rank `first`; a launcher may show each rank one of its own.
std::vector<int> group_gpus(const Topology& topology, const std::vector<Place>& places, int first,
                            const Options& options) {
  const std::vector<int> gpus = visible_gpus(options);
  if (gpus.empty()) return {};
  std::set<std::string> shown;
  for (int rank = 0; rank < topology.size; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    if (topology.ranks[i].host == topology.host()) shown.insert(places[i].visible);
  }
  if (shown.size() == static_cast<std::size_t>(topology.local_size) && topology.local_size > 1) {
    check(
        options.sweep.ranks_per_trial == 1, ExitCode::preflight,
        "the launcher shows each rank a GPU of its own; --ranks-per-trial {} needs all GPUs of a host visible to each",
        options.sweep.ranks_per_trial);
    return {gpus[0]};
  }
  std::vector<int> chosen;
  for (int i = first; i < first + options.sweep.ranks_per_trial; ++i) {
    const auto gpu = static_cast<std::size_t>(i);
    check(gpu < gpus.size() || options.device.oversubscribe_gpus, ExitCode::preflight,
          "{} ranks on host {} and {}; start one rank per GPU, or share GPUs with --oversubscribe-gpus",
          topology.local_size, topology.host_name(), counted(gpus.size(), "GPU"));
    chosen.push_back(gpus[gpu % gpus.size()]);
  }
  return chosen;
}

}  // namespace

Group form_group(const MpiSession& session, Communicator& ranks, const Topology& topology, const Options& options) {
  const int size = options.sweep.ranks_per_trial;
  const Binding binding = bind_ranks(session, topology, options.distributed, options.distributed.timeout);
  const std::vector<Place> places = gather_places(ranks, binding);
  return together(session, [&] {
    check(topology.size % size == 0, ExitCode::usage, "--ranks-per-trial {} does not divide the {} of this job", size,
          counted(static_cast<std::uint64_t>(topology.size), "rank"));
    Group group;
    const int first = topology.rank / size * size;
    group.leader = topology.rank == first;
    std::set<int> cpus;
    for (int rank = first; rank < first + size; ++rank) {
      const Topology::RankHost& place = topology.ranks[static_cast<std::size_t>(rank)];
      check(place.host == topology.host(), ExitCode::preflight,
            "--ranks-per-trial {}: ranks {} and {} are on different hosts ({} and {}); use a number that divides the "
            "ranks per "
            "host",
            size, topology.rank, rank, topology.host_name(), place.host_name);
      const std::vector<int>& theirs = places[static_cast<std::size_t>(rank)].cpus;
      cpus.insert(theirs.begin(), theirs.end());
    }
    group.cpus.assign(cpus.begin(), cpus.end());
    group.gpus = group_gpus(topology, places, topology.local_rank - (topology.rank - first), options);
    return group;
  });
}

}  // namespace ddp
