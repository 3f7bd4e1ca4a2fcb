// The files in /dev/shm through which Open MPI's ranks of a host exchange messages: whether there is room for them, what a
// killed job has left there, and what to say when a page of them cannot be had.
//
//   check_room(process_environment());   // before MPI_Init: Error(preflight) if /dev/shm is too small for the ranks here
//   const std::string removed = remove_abandoned_segments();   // a line about jobs of this user whose processes are gone
//   explain_bus_errors();
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "job/launch/launcher.h"

namespace ddp {

inline constexpr const char* kSharedMemoryFolder = "/dev/shm";

// The first rank of a host throws if there is too little room. `folder` stands for /dev/shm in tests.
void check_room(const Environment& environment, const std::filesystem::path& folder = kSharedMemoryFolder);

// Removes the segments of this user and host in `folder` that no process has mapped, and returns a line that says how many,
// empty if none. Does nothing in a container, where the processes that share the folder may be invisible. A segment younger
// than `settled` seconds may be about to be mapped.
std::string remove_abandoned_segments(const std::filesystem::path& folder = kSharedMemoryFolder,
                                      std::int64_t settled = 2);

// From now on a bus error while /dev/shm is full ends the process with one line and ExitCode::preflight.
void explain_bus_errors() noexcept;

}  // namespace ddp
