// Inside runtime only: the other ranks that the same launcher has started on this host, as /proc shows them. It is all
// that a rank knows of the others before MPI has started and after it has ended.
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

// The stopped ones (SIGSTOP, a debugger), by rank.
std::vector<Sibling> stopped_siblings();

// "rank 2 (process 4711) is stopped", of the siblings or the launcher; "" where nothing is.
std::string stopped_text();

// 'R', 'S', 'D', 'T', 'Z' ... as in /proc/PID/stat, or 0 where there is no such process.
char process_state(pid_t process);

// Among the processes of this launcher on this host that have not been stopped, whether this one has the lowest rank.
bool first_of_siblings();

}  // namespace ddp
