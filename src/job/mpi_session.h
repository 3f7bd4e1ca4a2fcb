// The MPI session: MPI_Init_thread to MPI_Finalize as the lifetime of one object, which outlives everything that
// communicates. Without mpirun it is a session of one rank.
//
//   const MpiSession session;
//   std::cout << session.rank() << " of " << session.size() << '\n';
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "options/version.h"

namespace ddp {

class MpiSession {
 public:
  // Initialises MPI with MPI_THREAD_MULTIPLE and MPI_ERRORS_RETURN, and sets the rank shown by base/log.h. Throws
  // Error(preflight) if the library does not support this, or if a launcher started several copies that MPI does not
  // connect (launcher.h).
  MpiSession();
  // Collective, like MPI_Finalize; a rank that fails alone must call abort() instead.
  ~MpiSession();
  // The session of the ranks below `count`, for work in which the others take no part; null on those. Collective over
  // this session, which must outlive it.
  std::unique_ptr<MpiSession> of_first(int count) const;
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // All ranks, for the main thread's exchanges during set-up; other uses take a duplicate().
  Communicator& ranks() const { return *ranks_; }

  // The lowest rank of the whole job on this host. Collective the first time.
  int lowest_rank_of_host() const;

  // What the start removed from the host's shared memory (segments.h), a line; empty if nothing, and on other ranks.
  std::string removed() const { return library_ ? library_->removed : std::string(); }

  // Ends all ranks at once, with this exit code for the job; from any thread. Writes nothing by itself.
  [[noreturn]] void abort(int exit_code) const noexcept;

 private:
  struct Library {
    Library();
    ~Library();
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;
    int thread_level = 0;
    std::string removed;
  };

  MpiSession(const MpiSession& all, std::unique_ptr<Communicator> ranks);

  std::unique_ptr<Library> library_;  // null in a session of some ranks
  int rank_ = 0;
  mutable std::optional<int> lowest_rank_of_host_;
  int size_ = 1;
  std::unique_ptr<Communicator> ranks_;
};

// The same in any state of MPI, including before MPI_Init and after MPI_Finalize.
[[noreturn]] void end_all_ranks(int exit_code) noexcept;

// The name and version of the MPI library in use: {"Open MPI", "4.1.4"}; needs no session.
LibraryVersion mpi_version();
// The same from what MPI_Get_library_version() returns.
LibraryVersion mpi_version_in(const std::string& text);

}  // namespace ddp
