// One rank's handle of a non-blocking NCCL communicator, from connecting the ranks to finalize or abort.
//
//   NcclConnection connection(ranks);                                   // called by all ranks
//   DDP_NCCL_ON(connection, ncclAllReduce(..., connection.get(), stream));
//   if (is_failure(connection.state())) connection.abort();
//
// Note [Aborting]
// ncclCommAbort stops this rank's kernels and threads at once, but returns only when nothing references the
// communicator any more; since NCCL 2.26 that includes every CUDA graph that contains its operations (NVIDIA: "CUDA
// Graph Best Practice", process hangs during teardown). The thread that detected the failure still has to unwind to the
// point where such a graph is destroyed, so abort() calls ncclCommAbort on a separate thread and does not wait.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <future>
#include <string>

#include "comm/communicator.h"
#include "comm/nccl/nccl_check.h"

namespace ddp {

inline bool is_failure(ncclResult_t state) { return state != ncclSuccess && state != ncclInProgress; }

class NcclConnection {
 public:
  // Throws Error(preflight) on all ranks, naming the failing rank and the reason, also on timeout.
  explicit NcclConnection(Communicator& ranks);
  // Finalizes together with the other ranks; aborts if they do not arrive, after an error, and during stack unwinding.
  ~NcclConnection();
  NcclConnection(const NcclConnection&) = delete;
  NcclConnection& operator=(const NcclConnection&) = delete;

  ncclComm_t get() const { return comm_; }

  // Waits until the operation started by `call`, which returned `code`, is enqueued on the stream. Throws like
  // check_nccl(), and Error(rank_lost) on timeout.
  void settle(ncclResult_t code, const char* call, const char* file, int line);

  // The asynchronous state of NCCL: a failure if any work failed on this rank or, if NCCL notices, on another.
  ncclResult_t state() const;

  // Aborts all outstanding work, see Note [Aborting]. The connection is unusable afterwards.
  void abort() noexcept;
  bool aborted() const { return aborted_; }

 private:
  void begin(ncclUniqueId id);
  bool poll(double seconds) const;
  void wait_for_all(Communicator& ranks, std::string failure);
  bool close() noexcept;
  void part() noexcept;

  ncclComm_t comm_ = nullptr;
  int rank_;
  int size_;
  double timeout_;
  bool aborted_ = false;
  std::future<void> abort_ended_;
};

}  // namespace ddp

#define DDP_NCCL_ON(connection, call) (connection).settle((call), #call, __FILE__, __LINE__)
