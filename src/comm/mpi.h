// The communicator of an MPI job.
//
//   MpiSession session(...);                                     // runtime: MPI_Init_thread(MPI_THREAD_MULTIPLE)
//   std::unique_ptr<Communicator> ranks = make_mpi_communicator(/*timeout_seconds=*/600);
//
// It waits by polling MPI_Testsome (backoff.h), never inside MPI: a blocking MPI call holds a core, cannot time out,
// and in Open MPI makes no progress unless somebody calls.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace ddp {

// All ranks of MPI_COMM_WORLD, on a communicator duplicated from it. MPI must be initialised with MPI_THREAD_MULTIPLE,
// else Error(preflight). Called by all ranks; destroyed before MPI_Finalize.
std::unique_ptr<Communicator> make_mpi_communicator(double timeout_seconds = 600);

// The ranks that share this rank's memory, which are those of its host.
struct HostGroup {
  int lowest_rank = 0;  // of the job
  int local_rank = 0;   // in the order of the ranks
  int local_size = 1;
};
// Collective over MPI_COMM_WORLD; waits inside MPI.
HostGroup mpi_host_group();

}  // namespace ddp
