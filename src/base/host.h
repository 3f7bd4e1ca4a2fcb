// The name of this host, for messages of jobs on several hosts, and the identity of its kernel and its processes.
//
//   throw Error(ExitCode::rank_lost, fmt::format("{}: the link is down", host_name()));
#pragma once

#include <string>

namespace ddp {

// "unknown host" if the system call fails.
std::string host_name();
// The ID that the kernel took when it started: the same in all containers and namespaces of a machine, and only there. Empty if
// the kernel does not report it.
std::string boot_id();
// Names the namespace of this process's ID: processes in the same one see each other below /proc. Empty if it cannot be read.
std::string pid_namespace();

}  // namespace ddp
