// The CPUs available to this process: logical CPUs, the physical cores they belong to, and CPU quotas.
//
//   const std::vector<int> cpus = affinity();         // {0, 1, 2, 3}
//   const CoreList cores = physical_cores(cpus);      // {{0, 2}, {1, 3}} with two threads per core
//   const double quota = cpu_quota();                 // 1.5 in a container with --cpus 1.5; infinite without one
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace ddp {

// Physical cores, each given by those of its logical CPUs that may be used.
using CoreList = std::vector<std::vector<int>>;

// The logical CPUs that a process may run on, ascending; 0 is the calling thread. Empty if the system does not tell.
std::vector<int> affinity(pid_t process = 0);

// Restricts the calling thread, and threads that it starts from now on, to these CPUs. Returns false if the system
// refuses.
bool set_affinity(std::span<const int> cpus);

// `cpus` grouped by physical core, socket by socket, as hwloc reports them. Each unknown CPU counts as a separate core.
// A test may describe another machine in hwloc's synthetic form, such as "package:2 core:4 pu:2".
CoreList physical_cores(std::span<const int> cpus, const std::string& synthetic = "");

// The CPU quota of this process in cores: the minimum over all enclosing control groups; infinite without a limit.
// Reads cpu.max (version 2) and cpu.cfs_quota_us (version 1).
double cpu_quota(const std::filesystem::path& membership = "/proc/self/cgroup",
                 const std::filesystem::path& mount = "/sys/fs/cgroup");

// {0, 1, 2, 5} as "0-2,5", and back. parse_cpus throws Error(internal) for anything else.
std::string format_cpus(std::span<const int> cpus);
std::vector<int> parse_cpus(const std::string& text);

}  // namespace ddp
