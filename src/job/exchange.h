// Texts of all ranks, exchanged during set-up.
//
//   const std::vector<std::string> hosts = all_gather_text(session, "node17", timeout, "the exchange of host names");
#pragma once

#include <string>
#include <vector>

#include "job/mpi_session.h"

namespace ddp {

// The watchdog (watchdog.h), which can name the rank to blame, ends the job after --timeout; the waits of the ranks
// themselves give up this many seconds later.
inline constexpr double kAfterWatchdog = 5;

// Collective: the texts of all ranks, by rank. Throws Error(rank_lost) naming `what` after `timeout` seconds without
// progress.
std::vector<std::string> all_gather_text(const MpiSession& session, const std::string& mine, double timeout,
                                         const char* what);

}  // namespace ddp
