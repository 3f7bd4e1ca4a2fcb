#include "runtime/exchange.h"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/heartbeat.h"
#include "runtime/mpi_check.h"

namespace ddp {
namespace {

// A wait that lasts is told to the watchdog.
constexpr double kLongWait = 0.2;
// How much later than the watchdog, which knows whom to blame, a wait gives up.
constexpr double kAfterTheWatchdog = 5;

// Polls, since a blocking wait has no timeout, and sleeps between, since ranks may share a core.
void wait(MPI_Request request, double timeout, const char* what) {
  const double begin = waiting_clock();
  const double limit = timeout >= rank_timeout() ? timeout + kAfterTheWatchdog : timeout;
  std::optional<RankWait> told;
  int done = 0;
  for (;;) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return heartbeat();
    const double waited = waiting_clock() - std::max(begin, progress_elsewhere());
    check(waited < limit, ExitCode::rank_lost,
          "{} is not complete after {:.0f} s: some rank hangs or is lost; look for the first message of another "
          "rank, or raise --timeout if one was only slow",
          what, timeout);
    if (!told && waiting_clock() - begin > kLongWait) told.emplace(what);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace

std::vector<std::string> all_gather_text(const MpiSession& session, const std::string& mine, double timeout,
                                         const char* what) {
  const auto size = static_cast<std::size_t>(session.size());
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(size);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD, &request),
            "MPI_Iallgather");
  wait(request, timeout, what);

  std::vector<int> offsets(size);
  std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), 0);
  std::string all(static_cast<std::size_t>(offsets.back() + lengths.back()), '\0');
  check_mpi(MPI_Iallgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), offsets.data(), MPI_CHAR,
                            MPI_COMM_WORLD, &request),
            "MPI_Iallgatherv");
  wait(request, timeout, what);

  std::vector<std::string> texts;
  texts.reserve(size);
  for (std::size_t rank = 0; rank < size; ++rank) {
    texts.push_back(all.substr(static_cast<std::size_t>(offsets[rank]), static_cast<std::size_t>(lengths[rank])));
  }
  return texts;
}

}  // namespace ddp
