// One rank's end of a NCCL communicator that never blocks: from connecting the ranks to parting, in peace or not.
//
//   NcclConnection connection(ranks);                                   // called by all ranks
//   DDP_NCCL_ON(connection, ncclAllReduce(..., connection.get(), stream));
//   if (is_failure(connection.state())) connection.abort();
//
// Note [Aborting]
// ncclCommAbort tells this rank's kernels and threads to end at once, but returns only when nothing refers to the
// communicator any more; since NCCL 2.26 that includes every CUDA graph with its sums (NVIDIA: "CUDA Graph Best
// Practice", process hangs during teardown). The thread that found the failure still has to unwind to where such a
// graph is destroyed, so abort() calls it on a thread of its own and does not wait.
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
  // Throws Error(preflight) on all ranks, naming the rank that cannot and why, also after the ranks' timeout.
  explicit NcclConnection(Communicator& ranks);
  // Parts from the other ranks; aborts where they do not come, after an error, and while an exception is under way.
  ~NcclConnection();
  NcclConnection(const NcclConnection&) = delete;
  NcclConnection& operator=(const NcclConnection&) = delete;

  ncclComm_t get() const { return comm_; }

  // Waits until what a call began is under way, so that the stream has it; `code` is what `call` returned. Throws what
  // check_nccl() throws, and Error(rank_lost) after the ranks' timeout.
  void settle(ncclResult_t code, const char* call, const char* file, int line);

  // What NCCL says of the work so far; a failure if any of it failed, on this rank or, where NCCL notices, on another.
  ncclResult_t state() const;

  // Ends all work under way, see Note [Aborting]. The connection is of no use afterwards.
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
