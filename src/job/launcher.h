// Compares the launcher's environment with what MPI reports. N copies of the program that are not connected would train
// the same model N times; this is rejected if it is certain.
//
//   check_launch(process_environment(), /*mpi_size=*/size, "Open MPI 4.1.4");
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ddp {

// A variable's value by its name.
using Environment = std::function<std::optional<std::string>(const char* name)>;

Environment process_environment();

// Before MPI_Init: throws JointError(preflight) where Slurm's srun started several tasks without any means to find one
// another, which MPI_Init would answer by a crash.
void check_before_start(const Environment& environment);

// After it: throws JointError(preflight) naming the variable where a launcher started several processes and MPI knows
// of one, on every copy, and the first reports. The launcher nearest to the program counts: under Open MPI's mpirun the
// variables of a Slurm job around it mean nothing. Warns where there may be a mistake.
void check_launch(const Environment& environment, int mpi_size, const std::string& mpi_library);

// Whether an MPI launcher has started this process, as far as the environment tells.
bool has_launcher(const Environment& environment);

// True where Open MPI's mpirun has bound the ranks by its default and not on anybody's word.
bool bound_by_default(const Environment& environment);

}  // namespace ddp
