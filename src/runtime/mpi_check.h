// Inside runtime only: the result of an MPI call as an exception.
//
//   check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
#pragma once

namespace ddp {

// Throws Error(rank_lost) with the call, MPI's own text and the host, unless `result` is MPI_SUCCESS.
void check_mpi(int result, const char* call);

}  // namespace ddp
