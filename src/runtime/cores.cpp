#include "runtime/cores.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <sstream>
#include <utility>

#include "base/error.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

// Far more than any machine has; the kernel refuses sets smaller than its own.
constexpr int kMaxCpus = 1 << 16;

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, FreeCpuSet>;

CpuSet make_cpu_set() {
  CpuSet set(CPU_ALLOC(kMaxCpus));
  if (!set) throw std::bad_alloc();
  CPU_ZERO_S(CPU_ALLOC_SIZE(kMaxCpus), set.get());
  return set;
}

// The whole number in a file of its own, or `fallback`.
int read_number(const fs::path& path, int fallback) {
  std::ifstream file(path);
  int value = fallback;
  return file >> value ? value : fallback;
}

// The quota that one control group sets for itself, in cores.
double group_quota(const fs::path& group) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::string quota;
  double period = 0;
  if (std::ifstream file(group / "cpu.max"); file >> quota >> period) {
    double value = 0;
    const auto result = std::from_chars(quota.data(), quota.data() + quota.size(), value);
    return result.ec == std::errc() && value > 0 && period > 0 ? value / period : kNone;
  }
  double value = -1;
  std::ifstream quota_file(group / "cpu.cfs_quota_us");
  std::ifstream period_file(group / "cpu.cfs_period_us");
  if (quota_file >> value && period_file >> period && value > 0 && period > 0) return value / period;
  return kNone;
}

// The least quota of the group `path` below `root` and of all groups around it.
double least_quota(const fs::path& root, const std::string& path) {
  double least = group_quota(root);
  fs::path group = root;
  for (const fs::path& step : fs::path(path).relative_path()) {
    group /= step;
    least = std::min(least, group_quota(group));
  }
  return least;
}

bool names_cpu(const std::string& controllers) {
  std::istringstream stream(controllers);
  for (std::string name; std::getline(stream, name, ',');) {
    if (name == "cpu") return true;
  }
  return false;
}

}  // namespace

std::vector<int> affinity(pid_t process) {
  const CpuSet set = make_cpu_set();
  const std::size_t bytes = CPU_ALLOC_SIZE(kMaxCpus);
  std::vector<int> cpus;
  if (sched_getaffinity(process, bytes, set.get()) != 0) return cpus;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (CPU_ISSET_S(cpu, bytes, set.get())) cpus.push_back(cpu);
  }
  return cpus;
}

bool set_affinity(std::span<const int> cpus) {
  const CpuSet set = make_cpu_set();
  const std::size_t bytes = CPU_ALLOC_SIZE(kMaxCpus);
  for (const int cpu : cpus) CPU_SET_S(cpu, bytes, set.get());
  return sched_setaffinity(0, bytes, set.get()) == 0;
}

CoreList physical_cores(std::span<const int> cpus, const fs::path& system) {
  struct Cpu {
    int socket;
    int core;
    int number;
  };
  std::vector<Cpu> found;
  for (const int cpu : cpus) {
    const fs::path topology = system / fmt::format("cpu{}", cpu) / "topology";
    // Without a core id the CPU gets a negative one that no other has.
    found.push_back(
        {read_number(topology / "physical_package_id", 0), read_number(topology / "core_id", -1 - cpu), cpu});
  }
  std::map<std::pair<int, int>, std::vector<int>> by_core;
  for (const Cpu& cpu : found) by_core[{cpu.socket, cpu.core}].push_back(cpu.number);
  // Within a socket, cores come in the order of their first CPU.
  std::vector<std::pair<std::pair<int, int>, std::vector<int>>> ordered;
  for (auto& [key, members] : by_core) {
    std::sort(members.begin(), members.end());
    ordered.emplace_back(std::pair(key.first, members.front()), std::move(members));
  }
  std::sort(ordered.begin(), ordered.end());
  CoreList cores;
  for (auto& [key, members] : ordered) cores.push_back(std::move(members));
  return cores;
}

double cpu_quota(const fs::path& membership, const fs::path& mount) {
  double least = std::numeric_limits<double>::infinity();
  std::ifstream file(membership);
  // Lines NUMBER:CONTROLLERS:PATH; without controllers for version 2.
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      least = std::min({least, least_quota(mount, path), least_quota(mount / "unified", path)});
    } else if (names_cpu(controllers)) {
      least = std::min({least, least_quota(mount / controllers, path), least_quota(mount / "cpu", path)});
    }
  }
  return least;
}

std::string format_cpus(std::span<const int> cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? std::to_string(cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[last]);
    i = last + 1;
  }
  return text;
}

std::vector<int> parse_cpus(const std::string& text) {
  std::vector<int> cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&] {
    int value = 0;
    const auto [stop, error] = std::from_chars(at, end, value);
    check(error == std::errc() && value >= 0 && value < kMaxCpus, ExitCode::internal,
          "internal error: '{}' is no list of CPUs", text);
    at = stop;
    return value;
  };
  while (at != end) {
    const int first = number();
    int last = first;
    if (at != end && *at == '-') {
      ++at;
      last = number();
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (at == end) break;
    check(*at == ',', ExitCode::internal, "internal error: '{}' is no list of CPUs", text);
    ++at;
  }
  return cpus;
}

}  // namespace ddp
