// The communicator of an MPI job.
//
//   const MpiSession session;                                    // job/mpi_session.h
//   std::unique_ptr<Communicator> ranks = make_mpi_communicator(/*timeout_seconds=*/600);
//
// It waits by polling MPI_Testsome (backoff.h), never inside MPI: a blocking MPI call holds a core, cannot time out,
// and Open MPI makes no progress outside of MPI calls.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace ddp {

// All ranks of MPI_COMM_WORLD, on a communicator duplicated from it. Collective. Throws Error(preflight) unless MPI was
// initialised with MPI_THREAD_MULTIPLE. Must be destroyed before MPI_Finalize.
std::unique_ptr<Communicator> make_mpi_communicator(double timeout_seconds = 600);

// The ranks of MPI_COMM_WORLD below `count`, without the others; null on those. Collective over all ranks; blocks inside MPI.
std::unique_ptr<Communicator> make_mpi_communicator_of_first(int count, double timeout_seconds = 600);

// The lowest of the ranks that share memory with this rank, i.e. of those on its host. Collective over MPI_COMM_WORLD; blocks
// inside MPI.
int mpi_lowest_rank_of_host();

}  // namespace ddp
