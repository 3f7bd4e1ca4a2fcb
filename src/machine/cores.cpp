#include "machine/cores.h"

#include <hwloc.h>
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

// Larger than any machine; the kernel rejects sets smaller than its own.
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

class MachineTopology {
 public:
  explicit MachineTopology(const std::string& synthetic) {
    if (hwloc_topology_init(&handle_) != 0) throw std::bad_alloc();
    // Ranks also query the CPUs of other processes.
    static_cast<void>(hwloc_topology_set_flags(handle_, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED));
    if (!synthetic.empty()) {
      check(hwloc_topology_set_synthetic(handle_, synthetic.c_str()) == 0, ExitCode::internal,
            "internal error: hwloc cannot parse the synthetic topology '{}'", synthetic);
    }
    loaded_ = hwloc_topology_load(handle_) == 0;
  }
  ~MachineTopology() { hwloc_topology_destroy(handle_); }
  MachineTopology(const MachineTopology&) = delete;
  MachineTopology& operator=(const MachineTopology&) = delete;

  // The number of the physical core of a logical CPU, socket after socket; negative if unknown.
  int core_of(int cpu) const {
    if (!loaded_) return -1;
    hwloc_obj_t object = hwloc_get_pu_obj_by_os_index(handle_, static_cast<unsigned>(cpu));
    while (object != nullptr && object->type != HWLOC_OBJ_CORE) object = object->parent;
    return object == nullptr ? -1 : static_cast<int>(object->logical_index);
  }

 private:
  hwloc_topology_t handle_ = nullptr;
  bool loaded_ = false;
};

struct FreeBitmap {
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

Bitmap make_bitmap() {
  Bitmap bitmap(hwloc_bitmap_alloc());
  if (!bitmap) throw std::bad_alloc();
  return bitmap;
}

std::string text_of(const Bitmap& bitmap) {
  std::string text(static_cast<std::size_t>(hwloc_bitmap_list_snprintf(nullptr, 0, bitmap.get())), '\0');
  static_cast<void>(hwloc_bitmap_list_snprintf(text.data(), text.size() + 1, bitmap.get()));
  return text;
}

// The quota of a single control group, in cores.
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

// The smallest quota of the group `path` below `root` and of all enclosing groups.
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

CoreList physical_cores(std::span<const int> cpus, const std::string& synthetic) {
  const MachineTopology topology(synthetic);
  std::map<int, std::vector<int>> by_core;
  CoreList unknown;
  for (const int cpu : cpus) {
    const int core = topology.core_of(cpu);
    if (core < 0) {
      unknown.push_back({cpu});
    } else {
      by_core[core].push_back(cpu);
    }
  }
  CoreList cores;
  for (auto& [core, members] : by_core) {
    std::sort(members.begin(), members.end());
    cores.push_back(std::move(members));
  }
  cores.insert(cores.end(), unknown.begin(), unknown.end());
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
  const Bitmap bitmap = make_bitmap();
  for (const int cpu : cpus) {
    if (hwloc_bitmap_set(bitmap.get(), static_cast<unsigned>(cpu)) != 0) throw std::bad_alloc();
  }
  return text_of(bitmap);
}

std::vector<int> parse_cpus(const std::string& text) {
  const Bitmap bitmap = make_bitmap();
  // hwloc skips what it cannot parse: a list is valid if it converts back to the same text.
  const bool good = hwloc_bitmap_list_sscanf(bitmap.get(), text.c_str()) == 0 &&
                    hwloc_bitmap_last(bitmap.get()) < kMaxCpus && text_of(bitmap) == text;
  check(good && hwloc_bitmap_weight(bitmap.get()) >= 0, ExitCode::internal,
        "internal error: '{}' is not a list of CPUs", text);
  std::vector<int> cpus;
  for (int cpu = hwloc_bitmap_first(bitmap.get()); cpu >= 0; cpu = hwloc_bitmap_next(bitmap.get(), cpu)) {
    cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace ddp
