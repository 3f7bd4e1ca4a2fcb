// The check of every MPI call.
//
//   DDP_MPI(MPI_Barrier(MPI_COMM_WORLD));
//
// A failed call throws Error with rank, host, call, source location and MPI's message: ExitCode::internal if its
// arguments are invalid, ExitCode::rank_lost if the communication failed. MPI must return its errors
// (MPI_ERRORS_RETURN).
#pragma once

namespace ddp {

// `code` is what `call` returned.
void check_mpi(int code, const char* call, const char* file, int line);

}  // namespace ddp

#define DDP_MPI(call) ::ddp::check_mpi((call), #call, __FILE__, __LINE__)
