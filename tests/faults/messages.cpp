// Faults of messages: MPI's profiling interface lets a program put its own functions in front of MPI's.
#include <mpi.h>
#include <sys/prctl.h>

#include <array>
#include <string_view>

#include "base/status/position.h"
#include "fault.h"

namespace {

// The exchange of pulses has a thread of its own, and its messages go through whatever happens.
bool in_pulse_thread() {
  std::array<char, 17> name{};
  return prctl(PR_GET_NAME, name.data()) == 0 && std::string_view(name.data()) == "pulses";
}

}  // namespace

extern "C" int MPI_Isend(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  if (!in_pulse_thread()) {
    const char* const place = ddp::phase_name(ddp::position().phase);
    if (ddp::faults::due("drop", place)) to = MPI_PROC_NULL;
    if (const auto fault = ddp::faults::due("delay", place)) ddp::faults::sleep_for(fault->seconds);
  }
  return PMPI_Isend(buffer, count, type, to, tag, comm, request);
}
