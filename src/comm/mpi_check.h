// One place that checks the return codes of MPI.
//
//   DDP_MPI(MPI_Barrier(MPI_COMM_WORLD));
//
// A failed call throws Error with the call, the place, the rank and MPI's own words: ExitCode::internal where the call
// itself was wrong, ExitCode::rank_lost where the communication failed. MPI must return its errors (MPI_ERRORS_RETURN).
#pragma once

namespace ddp {

// `code` is what `call` returned.
void check_mpi(int code, const char* call, const char* file, int line);

}  // namespace ddp

#define DDP_MPI(call) ::ddp::check_mpi((call), #call, __FILE__, __LINE__)
