#include "comm/nccl/nccl_connection.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "comm/transport/backoff.h"

namespace ddp {
namespace {

// An all-reduce takes multiprocessors from backward, one per block. Sixteen of them saturate a link within a node and
// are an eighth of a large GPU.
constexpr int kMaxCtas = 16;

// How long the ranks poll NCCL before they exchange their status.
constexpr double kRoundSeconds = 0.02;

// How long to wait for other ranks, and for graphs not yet destroyed, before a connection is abandoned.
constexpr double kPartingSeconds = 10;

constexpr double kEagerStart = 1e-3;

// The unique ID of the communicator, created by rank 0, on all ranks.
ncclUniqueId share_id(Communicator& ranks) {
  ncclUniqueId id{};
  std::string failure;
  if (ranks.rank() == 0) {
    try {
      DDP_NCCL(ncclGetUniqueId(&id));
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  failure = ranks.broadcast_text(failure, 0);
  check(failure.empty(), ExitCode::preflight, "NCCL cannot start: {}; NCCL_DEBUG=INFO shows the reason", failure);
  ranks.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
  return id;
}

// The status of a rank while connecting, as exchanged between the ranks.
enum Progress : std::int64_t { connected, connecting, failed };

}  // namespace

NcclConnection::NcclConnection(Communicator& ranks)
    : rank_(ranks.rank()), size_(ranks.size()), timeout_(ranks.timeout()) {
  const ncclUniqueId id = share_id(ranks);
  std::string failure;
  try {
    begin(id);
  } catch (const Error& error) {
    failure = error.what();
  }
  try {
    wait_for_all(ranks, std::move(failure));
  } catch (...) {
    abort();
    part();
    throw;
  }
}

NcclConnection::~NcclConnection() {
  if (!aborted_ && (std::uncaught_exceptions() > 0 || !close())) abort();
  part();
}

void NcclConnection::begin(ncclUniqueId id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = kMaxCtas;
  DDP_NCCL(ncclCommInitRankConfig(&comm_, size_, id, rank_, &config));
}

// Whether the operation in progress completed within `seconds`; throws if it failed.
bool NcclConnection::poll(double seconds) const {
  Backoff backoff(kEagerStart);
  for (;;) {
    const ncclResult_t code = state();
    DDP_NCCL(code);
    if (code == ncclSuccess) return true;
    if (backoff.waited() > seconds) return false;
    backoff.pause();
  }
}

// If NCCL fails on one rank, the others wait inside NCCL, so the ranks exchange their status in rounds.
void NcclConnection::wait_for_all(Communicator& ranks, std::string failure) {
  const double begin = now();
  std::vector<std::int64_t> all(static_cast<std::size_t>(size_));
  for (;;) {
    std::int64_t mine = Progress::connecting;
    try {
      if (failure.empty() && poll(kRoundSeconds)) {
        mine = Progress::connected;
      } else if (failure.empty() && now() - begin > timeout_) {
        failure = fmt::format("not connected after {:g} s", timeout_);
      }
    } catch (const Error& error) {
      failure = error.what();
    }
    if (!failure.empty()) mine = Progress::failed;
    ranks.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    if (const auto broken = std::find(all.begin(), all.end(), Progress::failed); broken != all.end()) {
      const int rank = static_cast<int>(broken - all.begin());
      throw Error(ExitCode::preflight, fmt::format("NCCL cannot connect the ranks: rank {}: {}; NCCL_DEBUG=INFO shows "
                                                   "the reason",
                                                   rank, ranks.broadcast_text(failure, rank)));
    }
    if (std::count(all.begin(), all.end(), Progress::connected) == size_) return;
  }
}

void NcclConnection::settle(ncclResult_t code, const char* call, const char* file, int line) {
  check_nccl(code, call, file, line);
  Backoff backoff(kEagerStart);
  while (code == ncclInProgress) {
    check(backoff.waited() <= timeout_, ExitCode::rank_lost, "waited {:g} s for {} to begin: a rank hung or died",
          timeout_, call);
    backoff.pause();
    code = state();
    check_nccl(code, call, file, line);
  }
}

ncclResult_t NcclConnection::state() const {
  if (comm_ == nullptr) return ncclInvalidUsage;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t code = ncclCommGetAsyncError(comm_, &state);
  return code == ncclSuccess ? state : code;
}

// Whether the other ranks also arrived to disconnect.
bool NcclConnection::close() noexcept {
  try {
    DDP_NCCL(ncclCommFinalize(comm_));
    if (!poll(std::min(kPartingSeconds, timeout_))) return false;
    DDP_NCCL(ncclCommDestroy(std::exchange(comm_, nullptr)));
    return true;
  } catch (const std::exception&) {
    return false;  // it is aborted instead
  }
}

void NcclConnection::abort() noexcept {
  aborted_ = true;
  if (comm_ == nullptr) return;
  try {
    std::packaged_task<void()> task([comm = std::exchange(comm_, nullptr)] { static_cast<void>(ncclCommAbort(comm)); });
    abort_ended_ = task.get_future();
    std::thread(std::move(task)).detach();
  } catch (const std::exception&) {
    // Without a thread nothing can be done; NCCL's work ends with the process.
    abort_ended_ = {};
  }
}

void NcclConnection::part() noexcept {
  if (!abort_ended_.valid()) return;
  static_cast<void>(abort_ended_.wait_for(std::chrono::duration<double>(kPartingSeconds)));
}

}  // namespace ddp
