#include "machine/binding.h"

#include <fmt/core.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/partition.h"
#include "base/text/text.h"
#include "base/threads.h"
#include "job/exchange.h"
#include "job/report.h"

namespace ddp {
namespace {

// More ranks on a host than this are not listed one by one.
constexpr std::size_t kMostListed = 8;

std::string smallest_to_largest(std::span<const RankBinding> ranks, std::size_t (*size)(const RankBinding&)) {
  const auto less = [size](const RankBinding& a, const RankBinding& b) { return size(a) < size(b); };
  const auto [low, high] = std::minmax_element(ranks.begin(), ranks.end(), less);
  return size(*low) == size(*high) ? std::to_string(size(*low)) : fmt::format("{} to {}", size(*low), size(*high));
}

std::vector<RankBinding> ranks_on(std::span<const RankBinding> ranks, int host) {
  std::vector<RankBinding> found;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(found),
               [host](const auto& it) { return it.host == host; });
  return found;
}

// "bound to cores 0 | 1", "sharing cores 0-1", "not bound".
std::string describe_host(std::span<const RankBinding> ranks) {
  if (std::all_of(ranks.begin(), ranks.end(), [](const auto& it) { return it.bound && it.alone; })) {
    std::string list;
    for (const RankBinding& rank : ranks) list += (list.empty() ? "" : " | ") + format_cpus(rank.cpus);
    if (ranks.size() == 1 && ranks.front().cpus.size() == 1) return "bound to core " + list;
    if (ranks.size() <= kMostListed) return "bound to cores " + list;
    return fmt::format("bound to {} cores each",
                       smallest_to_largest(ranks, [](const RankBinding& rank) { return rank.cpus.size(); }));
  }
  const RankBinding& first = ranks.front();
  if (std::any_of(ranks.begin(), ranks.end(), [](const auto& it) { return !it.bound; })) return "not bound";
  if (std::all_of(ranks.begin(), ranks.end(), [&](const auto& it) { return it.cpus == first.cpus; })) {
    return (first.cpus.size() == 1 ? "sharing core " : "sharing cores ") + format_cpus(first.cpus);
  }
  return "bound to cores that they share";
}

// Conversion of a rank's binding to text and back.
std::string pack(const RankBinding& rank) {
  return fmt::format("{} {} {} {}", rank.threads, rank.bound ? 1 : 0, rank.alone ? 1 : 0, format_cpus(rank.cpus));
}

RankBinding unpack(const std::string& text, int host) {
  RankBinding rank;
  rank.host = host;
  std::string cpus;
  std::istringstream(text) >> rank.threads >> rank.bound >> rank.alone >> cpus;
  rank.cpus = parse_cpus(cpus);
  return rank;
}

void warn_if_crowded(const HostView& view, const Topology& topology, const CoreShare& share, int threads) {
  // On each host, one rank of each group that shares cores warns.
  const auto& own = view.cpus_of_ranks[static_cast<std::size_t>(topology.local_rank)];
  const auto first = std::find(view.cpus_of_ranks.begin(), view.cpus_of_ranks.end(), own);
  if (first - view.cpus_of_ranks.begin() != topology.local_rank) return;
  const auto group = static_cast<std::size_t>(std::count(view.cpus_of_ranks.begin(), view.cpus_of_ranks.end(), own));
  if (group > own.size()) {
    log_warning("{} share {} on host {}, which is oversubscribed; start at most {} there", counted(group, "rank"),
                counted(own.size(), "core"), topology.host_name(), counted(own.size(), "rank"));
  } else if (static_cast<double>(topology.local_size) > std::ceil(view.quota)) {
    log_warning("{} on host {} exceed the CPU quota of {:.1f} cores", counted(group, "rank"), topology.host_name(),
                view.quota);
  } else if (static_cast<std::size_t>(threads) > share.cpus.size()) {
    log_warning("--threads {} exceeds the {} of this rank on host {}", threads, counted(share.cpus.size(), "core"),
                topology.host_name());
  }
}

void set_affinity_of_compute_threads(std::span<const int> cpus) {
#pragma omp parallel
  (void)set_affinity(cpus);
}

// The team of OpenMP, which would end the process if it could not be started.
void start_compute_threads(int threads) {
  const int startable = startable_threads(threads - 1);
  if (startable < threads - 1) {
    no_thread(fmt::format("each of --threads {} (at most {} are possible now)", threads, startable + 1),
              std::make_error_code(std::errc::resource_unavailable_try_again));
  }
  omp_set_num_threads(threads);
#pragma omp parallel
  {}
}

}  // namespace

RestrictedTo::RestrictedTo(std::span<const int> cpus) : before_(affinity()) { set_affinity_of_compute_threads(cpus); }

RestrictedTo::~RestrictedTo() { set_affinity_of_compute_threads(before_); }

std::vector<int> available_cpus(const Environment& environment) {
  std::vector<int> own = affinity();
  if (!bound_by_default(environment)) return own;
  // The parent is mpirun, or its daemon on another host, and is not bound.
  std::vector<int> launcher = affinity(getppid());
  return std::includes(launcher.begin(), launcher.end(), own.begin(), own.end()) ? launcher : own;
}

CoreShare share_of(const HostView& view, int local_rank) {
  const auto& all = view.cpus_of_ranks;
  const std::vector<int>& own = all[static_cast<std::size_t>(local_rank)];
  const auto ranks = std::count(all.begin(), all.end(), own);
  const auto index = std::count(all.begin(), all.begin() + local_rank, own);
  const auto cores = static_cast<std::int64_t>(view.cores.size());
  const auto cpus = static_cast<std::int64_t>(own.size());

  CoreShare share;
  if (ranks <= cores) {
    const Range range = part(cores, ranks, index);
    for (std::int64_t core = range.begin; core < range.end; ++core) {
      const std::vector<int>& members = view.cores[static_cast<std::size_t>(core)];
      share.cpus.insert(share.cpus.end(), members.begin(), members.end());
    }
    share.cores = static_cast<int>(range.size());
    share.alone = true;
  } else if (ranks <= cpus) {
    // Fewer physical cores than ranks, but enough hardware threads.
    std::vector<int> by_core;
    for (const std::vector<int>& members : view.cores) by_core.insert(by_core.end(), members.begin(), members.end());
    const Range range = part(cpus, ranks, index);
    share.cpus.assign(by_core.begin() + range.begin, by_core.begin() + range.end);
    share.cores = static_cast<int>(range.size());
    share.alone = true;
  } else {
    // With one core each, some ranks would share a core and others not; the operating system schedules better.
    share.cpus = own;
  }
  std::sort(share.cpus.begin(), share.cpus.end());
  return share;
}

int threads_for(const CoreShare& share, double quota, int local_size) {
  const double part_of_quota = std::floor(quota / local_size);
  return part_of_quota < share.cores ? std::max(1, static_cast<int>(part_of_quota)) : share.cores;
}

std::string describe_binding(std::span<const RankBinding> ranks) {
  DDP_ASSERT(!ranks.empty());
  int hosts = 0;
  for (const RankBinding& rank : ranks) hosts = std::max(hosts, rank.host + 1);
  const std::string threads =
      smallest_to_largest(ranks, [](const RankBinding& rank) { return static_cast<std::size_t>(rank.threads); });
  std::string text = fmt::format("{} on {}, {} thread{}{}", counted(ranks.size(), "rank"),
                                 counted(static_cast<std::size_t>(hosts), "host"), threads, threads == "1" ? "" : "s",
                                 ranks.size() == 1 ? "" : " each");
  const std::string first = describe_host(ranks_on(ranks, 0));
  bool same = true;
  for (int host = 1; host < hosts; ++host) same = same && describe_host(ranks_on(ranks, host)) == first;
  if (same) return text + ", " + first + (hosts > 1 && first != "not bound" ? " on each host" : "");
  return text + ", bound differently on each host";
}

Binding bind_ranks(const MpiSession& session, const Topology& topology, const DistributedOptions& options,
                   double timeout) {
  const bool bind = options.bind == BindMode::automatic;
  const std::vector<int> own = bind ? available_cpus(process_environment()) : affinity();
  const std::vector<std::string> texts =
      all_gather_text(session, format_cpus(own), timeout, "the exchange of available cores");
  HostView view;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (topology.ranks[rank].host == topology.host()) view.cpus_of_ranks.push_back(parse_cpus(texts[rank]));
  }
  view.cores = physical_cores(own);
  view.quota = cpu_quota();

  const CoreShare share = share_of(view, topology.local_rank);
  Binding binding;
  binding.cpus = share.cpus;
  binding.threads = options.threads > 0 ? options.threads : threads_for(share, view.quota, topology.local_size);
  warn_if_crowded(view, topology, share, binding.threads);
  if (bind && !share.cpus.empty()) {
    binding.bound = set_affinity(share.cpus);
    if (!binding.bound) log_warning("cannot bind this rank to cores {}; it runs unbound", format_cpus(share.cpus));
  }
  together(session, [&] { start_compute_threads(binding.threads); });

  const RankBinding mine{topology.host(), binding.threads, binding.bound, share.alone, binding.cpus};
  const std::vector<std::string> all = all_gather_text(session, pack(mine), timeout, "the exchange of bindings");
  std::vector<RankBinding> ranks;
  for (std::size_t rank = 0; rank < all.size(); ++rank) ranks.push_back(unpack(all[rank], topology.ranks[rank].host));
  binding.sentence = describe_binding(ranks);
  return binding;
}

}  // namespace ddp
