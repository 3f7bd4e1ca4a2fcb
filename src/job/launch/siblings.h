// The other ranks that the same launcher started on this host, as listed in /proc. This is all that a rank can know
// about the others before MPI_Init and after MPI_Finalize.
//
//   for (const Sibling& each : stopped_siblings()) ...   // "rank 2 (process 4711)"
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace ddp {

struct Sibling {
  int rank = -1;  // -1: unknown
  pid_t process = 0;
};

// All of them, this process among them, by rank; other children of the launcher that are no ranks are left out.
std::vector<Sibling> siblings();
// The stopped ones (by SIGSTOP or a debugger), by rank.
std::vector<Sibling> stopped_siblings();

// "rank 2 (process 4711) is stopped", of the siblings or the launcher; "" if none is stopped.
std::string stopped_text();

// 'R', 'S', 'D', 'T', 'Z' ... as in /proc/PID/stat, or 0 if the process does not exist.
char process_state(pid_t process);

// Whether this process has the lowest rank among those of this launcher on this host that are not stopped.
bool first_of_siblings();

}  // namespace ddp
