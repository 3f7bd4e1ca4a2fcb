// Inside runtime only: what ranks tell one another while they set up, before there is a Communicator.
//
//   const std::vector<std::string> hosts = all_gather_text(session, "node17", timeout, "the exchange of host names");
#pragma once

#include <string>
#include <vector>

#include "runtime/mpi_session.h"

namespace ddp {

// Collective: the texts of all ranks, by rank. Throws Error(rank_lost) naming `what` after `timeout` seconds.
std::vector<std::string> all_gather_text(const MpiSession& session, const std::string& mine, double timeout,
                                         const char* what);

}  // namespace ddp
