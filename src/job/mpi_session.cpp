#include "job/mpi_session.h"

#include <fmt/core.h>
#include <mpi.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/status/heartbeat.h"
#include "base/status/last_acts.h"
#include "comm/transport/mpi.h"
#include "comm/transport/mpi_check.h"
#include "comm/transport/self.h"
#include "job/hangs/watchdog.h"
#include "job/joint_error.h"
#include "job/launch/launcher.h"
#include "job/launch/segments.h"
#include "job/launch/siblings.h"

namespace ddp {
namespace {

// Whether this process may read another's memory with process_vm_readv, as Open MPI's shared-memory transport does.
// Containers often forbid the system call, and Open MPI then prints a line on standard error for every message.
bool can_read_across_processes() {
  char from = 1;
  char to = 0;
  const iovec local{&to, 1};
  const iovec remote{&from, 1};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

// Judged by the environment.
bool all_on_this_host() {
  const char* const ranks = std::getenv("OMPI_COMM_WORLD_SIZE");
  const char* const here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (ranks != nullptr && here != nullptr) return std::string_view(ranks) == here;
  return !has_launcher(process_environment());
}

// MPI hangs if it cannot open more files.
void raise_descriptor_limit() {
  constexpr rlim_t kLeast = 64;
  constexpr rlim_t kWanted = 65536;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < kLeast) {
    throw JointError(
        ExitCode::preflight,
        fmt::format("the limit of {} open files (ulimit -n) is too low for MPI; raise it to 1024", limit.rlim_max),
        first_of_siblings());
  }
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kWanted));
  static_cast<void>(setrlimit(RLIMIT_NOFILE, &limit));
}

// Settings that Open MPI reads from the environment; those set by the user take precedence.
void prepare_environment() {
  if (!can_read_across_processes()) setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  // Ranks of one host communicate through shared memory and need neither listen on the network nor load the libraries
  // of fast networks: probing for the hardware takes 0.2 s, and closing one of them (btl/ofi) sleeps for a second.
  if (all_on_this_host()) {
    setenv("OMPI_MCA_btl", "^tcp,ofi", 0);
    setenv("OMPI_MCA_pml", "ob1", 0);
  } else {
    // Over TCP the pieces of messages (comm/transport/mpi.cpp) are sent without asking whether they are expected, which they are: the
    // answer would wait behind the data that travel the same way. At 1 Gbit/s sums of two hosts took 1.6 times as long.
    constexpr const char* kMoreThanAPiece = "196608";
    constexpr const char* kLargestSend = "262144";
    setenv("OMPI_MCA_btl_tcp_eager_limit", kMoreThanAPiece, 0);
    setenv("OMPI_MCA_btl_tcp_rndv_eager_limit", kMoreThanAPiece, 0);
    setenv("OMPI_MCA_btl_tcp_max_send_size", kLargestSend, 0);
  }
  // A session of one rank without mpirun needs no daemon.
  setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
  // Nor does it need a session directory. All such sessions would share one, and a session that ends would remove it
  // while another starts.
  if (!has_launcher(process_environment())) setenv("OMPI_MCA_orte_create_session_dirs", "0", 0);
}

const char* thread_level_name(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    default:
      return "MPI_THREAD_MULTIPLE";
  }
}

std::string mpi_library_text() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "unknown";
  return {text.data(), static_cast<std::size_t>(length)};
}

}  // namespace

MpiSession::Library::Library() {
  check_before_start(process_environment());
  raise_descriptor_limit();
  const Environment environment = process_environment();
  if (environment("OMPI_COMM_WORLD_LOCAL_RANK").value_or("0") == "0") removed = remove_abandoned_segments();
  check_room(environment);
  explain_bus_errors();
  prepare_environment();
  enter(MpiStage::starting);
  DDP_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &thread_level));
}

MpiSession::Library::~Library() {
  enter(MpiStage::ending);
  if (MPI_Finalize() != MPI_SUCCESS) log_warning("MPI_Finalize failed");
  enter(MpiStage::after);
}

MpiSession::MpiSession() : library_(std::make_unique<Library>()) {
  DDP_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  DDP_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
  DDP_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size_));
  log_init(rank_, size_);
  const LibraryVersion mpi = mpi_version();
  check(library_->thread_level >= MPI_THREAD_MULTIPLE, ExitCode::preflight,
        "{} {} provides only {}; use an MPI library built with MPI_THREAD_MULTIPLE", mpi.name, mpi.version,
        thread_level_name(library_->thread_level));
  check_launch(process_environment(), size_, mpi.name + " " + mpi.version);
  ranks_ = size_ == 1 ? make_self_communicator() : make_mpi_communicator(rank_timeout());
  enter(MpiStage::running);
}

MpiSession::MpiSession(const MpiSession& all, std::unique_ptr<Communicator> ranks)
    : rank_(all.rank_),
      lowest_rank_of_host_(all.lowest_rank_of_host_),
      size_(ranks->size()),
      ranks_(std::move(ranks)) {}

MpiSession::~MpiSession() = default;

std::unique_ptr<MpiSession> MpiSession::of_first(int count) const {
  std::unique_ptr<Communicator> ranks;
  // Later only some of the ranks would ask.
  (void)lowest_rank_of_host();
  if (size_ == 1) {
    ranks = make_self_communicator();
  } else {
    const RankWait wait("the division of the ranks");
    ranks = make_mpi_communicator_of_first(count, rank_timeout());
  }
  if (!ranks) return nullptr;
  if (count == 1) ranks = make_self_communicator();
  return std::unique_ptr<MpiSession>(new MpiSession(*this, std::move(ranks)));
}

int MpiSession::lowest_rank_of_host() const {
  if (!lowest_rank_of_host_) {
    if (size_ > 1) {
      const RankWait wait("the exchange of host names");
      lowest_rank_of_host_ = mpi_lowest_rank_of_host();
    } else {
      lowest_rank_of_host_ = rank_;
    }
  }
  return *lowest_rank_of_host_;
}

// Not static, because ending the ranks requires a session.
void MpiSession::abort(int exit_code) const noexcept {  // NOLINT(readability-convert-member-functions-to-static)
  end_all_ranks(exit_code);
}

void end_all_ranks(int exit_code) noexcept {
  static std::atomic<bool> begun{false};
  // The main thread and the watchdog may both call this; the first exit code counts.
  while (begun.exchange(true)) std::this_thread::sleep_for(std::chrono::seconds(1));
  try {
    // If the last acts or MPI_Abort hang, this process exits anyway, which mpirun notices.
    std::thread([exit_code] {
      std::this_thread::sleep_for(std::chrono::seconds(2));
      _exit(exit_code);
    }).detach();
  } catch (...) {
    // No thread could be started; continue without it.
  }
  perform_last_acts();
  if (current_mpi_stage() == MpiStage::running) MPI_Abort(MPI_COMM_WORLD, exit_code);
  _exit(exit_code);
}

LibraryVersion mpi_version() { return mpi_version_in(mpi_library_text()); }

LibraryVersion mpi_version_in(const std::string& text) {
  // "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, ...", "MPICH Version:\t4.0.2\n...", "MVAPICH2 Version : 2.3"
  const std::string first = text.substr(0, text.find_first_of(",\n"));
  std::size_t digit = first.find_first_of("0123456789");
  while (digit != std::string::npos && digit > 0 &&
         std::string_view(" \tv").find(first[digit - 1]) == std::string::npos) {
    digit = first.find_first_of("0123456789", digit + 1);
  }
  if (digit == std::string::npos || digit == 0) return {"MPI", first};
  std::string name = first.substr(0, first.find_last_not_of(" \t:v", digit - 1) + 1);
  constexpr std::string_view kWord = " Version";
  if (name.ends_with(kWord)) name.resize(name.size() - kWord.size());
  return {name, first.substr(digit)};
}

}  // namespace ddp
