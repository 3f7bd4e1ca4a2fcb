// The name of this machine, for messages of jobs that run on several.
//
//   throw Error(ExitCode::rank_lost, fmt::format("{}: the link is down", host_name()));
#pragma once

#include <string>

namespace ddp {

// "unknown host" where the system does not say.
std::string host_name();

}  // namespace ddp
