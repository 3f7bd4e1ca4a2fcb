// The MPI session: MPI_Init_thread to MPI_Finalize as the lifetime of one object, which outlives everything that
// communicates. Without mpirun it is a session of one rank.
//
//   const MpiSession session;
//   std::cout << session.rank() << " of " << session.size() << '\n';
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "options/version.h"

namespace ddp {

class MpiSession {
 public:
  // Starts MPI with MPI_THREAD_MULTIPLE, has its errors returned, and sets the rank that base/log.h shows.
  // Throws Error(preflight) where the library cannot do that, and where a launcher started several copies of the
  // program that MPI does not know to belong together (launcher.h).
  MpiSession();
  // Collective, as MPI_Finalize is: a rank that fails alone calls abort() in its place.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // All ranks, for the main thread's exchanges during set-up; other uses take a duplicate().
  Communicator& ranks() const { return *ranks_; }

  // Ends all ranks at once, with this exit code for the job; from any thread. Writes nothing by itself.
  [[noreturn]] void abort(int exit_code) const noexcept;

 private:
  struct Library {
    Library();
    ~Library();
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;
    int thread_level = 0;
  };

  Library library_;
  int rank_ = 0;
  int size_ = 1;
  std::unique_ptr<Communicator> ranks_;
};

// The same from wherever MPI is, also before its start and after its end.
[[noreturn]] void end_all_ranks(int exit_code) noexcept;

// The MPI library that runs: {"Open MPI", "4.1.4"}; without a session too.
LibraryVersion mpi_version();

}  // namespace ddp
