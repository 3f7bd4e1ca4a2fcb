// The name of this host, for messages of jobs on several hosts.
//
//   throw Error(ExitCode::rank_lost, fmt::format("{}: the link is down", host_name()));
#pragma once

#include <string>

namespace ddp {

// "unknown host" if the system call fails.
std::string host_name();

}  // namespace ddp
