// Compares the launcher's environment with what MPI reports. N copies of the program that are not connected would train
// the same model N times; this is rejected if it is certain.
//
//   check_launch(process_environment(), /*mpi_size=*/size, "Open MPI 4.1.4");
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ddp {

// Returns the value of an environment variable, or null.
using Environment = std::function<std::optional<std::string>(const char* name)>;

Environment process_environment();

// Call before MPI_Init: throws JointError(preflight) if Slurm's srun started several tasks without a PMI plugin;
// MPI_Init would crash.
void check_before_start(const Environment& environment);

// Call after MPI_Init: throws JointError(preflight) naming the variable if a launcher started several processes but MPI
// reports one; every copy throws, the first reports. Only the innermost launcher counts: under Open MPI's mpirun the
// variables of an enclosing Slurm job are ignored. Warns if a mistake is possible but not certain.
void check_launch(const Environment& environment, int mpi_size, const std::string& mpi_library);

// Whether the environment indicates that an MPI launcher started this process.
bool has_launcher(const Environment& environment);

// For a host that mpirun cannot be reached from any more: ends Open MPI's daemon, the parent of this process, a few seconds
// from now. By itself it would go on for a quarter of an hour, until TCP gives up. Nothing happens below other launchers.
void end_cut_off_daemon() noexcept;

// Whether Open MPI's mpirun bound the ranks by default rather than at the user's request.
bool bound_by_default(const Environment& environment);

}  // namespace ddp
