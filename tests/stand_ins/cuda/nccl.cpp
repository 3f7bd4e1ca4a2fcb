#include "stand_ins/cuda/nccl.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "backend/arithmetic.h"
#include "backend/tensor.h"
#include "comm/sums/reduce.h"
#include "stand_ins/cuda/runtime.h"

namespace ddp::testing {
namespace {

// What a communicator shares with its work on streams.
struct Shared {
  std::unique_ptr<Communicator> messages;
  NcclFaults faults;
  std::atomic<ncclResult_t> state{ncclInProgress};
  std::atomic<bool> aborted{false};
  std::atomic<int> under_way{0};  // sums that are accepted or on a stream
  std::atomic<int> recorded{0};   // sums in graphs
  std::shared_ptr<std::atomic<std::size_t>> ended = std::make_shared<std::atomic<std::size_t>>(0);

  void wait_for_abort() const {
    while (!aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

std::atomic<int> made{0};
std::atomic<int> destroyed{0};
std::atomic<int> aborted{0};

thread_local std::unique_ptr<Communicator> next_messages;
thread_local NcclFaults next_faults;
thread_local std::shared_ptr<std::atomic<std::size_t>> last_ended;

void connect(Shared& shared, const ncclUniqueId& id) {
  if (shared.faults.connects_never) shared.wait_for_abort();
  if (shared.aborted) return;
  if (shared.faults.connect != ncclSuccess) {
    shared.state = shared.faults.connect;
    return;
  }
  try {
    ncclUniqueId of_root = id;
    shared.messages->broadcast(std::as_writable_bytes(std::span(&of_root, 1)), 0);
    shared.messages->barrier();
    const bool same = std::memcmp(&of_root, &id, sizeof(id)) == 0;
    shared.state = same ? ncclSuccess : ncclInvalidArgument;
  } catch (const std::exception&) {
    shared.state = ncclRemoteError;
  }
}

void sum_in_bf16(Communicator& messages, std::span<Bf16> values) {
  std::vector<float> wide(values.size());
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = float_of_bf16(values[i].bits);
  all_reduce_sum(messages, wide, Reduction::ring);
  for (std::size_t i = 0; i < wide.size(); ++i) values[i].bits = bf16_bits(wide[i]);
}

// One sum, called on the stream's thread.
void sum(Shared& shared, void* values, std::size_t count, ncclDataType_t type, std::size_t number) {
  if (shared.aborted) return;
  if (number == shared.faults.silent_sum) {
    shared.wait_for_abort();
    return;
  }
  try {
    if (number == shared.faults.broken_sum) throw std::runtime_error("on purpose");
    if (type == ncclFloat64) {
      shared.messages->all_reduce(std::span(static_cast<double*>(values), count), ReduceOp::sum);
    } else if (type == ncclBfloat16) {
      sum_in_bf16(*shared.messages, {static_cast<Bf16*>(values), count});
    } else {
      all_reduce_sum(*shared.messages, {static_cast<float*>(values), count}, Reduction::ring);
    }
    ++*shared.ended;
  } catch (const std::exception&) {
    shared.state = ncclRemoteError;
    shared.wait_for_abort();
  }
}

// Increments a counter for the lifetime of the returned object.
std::shared_ptr<void> counted(const std::shared_ptr<Shared>& shared, std::atomic<int> Shared::*count) {
  ++((*shared).*count);
  return {nullptr, [shared, count](void* /*nothing*/) { --((*shared).*count); }};
}

}  // namespace

void prepare_nccl(std::unique_ptr<Communicator> messages, NcclFaults faults) {
  next_messages = std::move(messages);
  next_faults = faults;
}

NcclCounts nccl_counts() { return {made, destroyed, aborted}; }

std::function<std::size_t()> nccl_sums_ended() {
  return [ended = last_ended] { return ended->load(); };
}

}  // namespace ddp::testing

using namespace ddp::testing;  // NOLINT(google-build-using-namespace): the stand-in is these names

struct ncclComm {
  std::shared_ptr<Shared> shared;
  std::thread connector;
  std::size_t sums = 0;
  std::function<void()> accepted;  // a sum that is not on its stream yet
  int polls = 0;
  bool finalizing = false;
};

namespace {

// Waits for the threads and graphs that use the communicator, as NCCL does.
void end(ncclComm* comm) {
  const std::unique_ptr<ncclComm> owned(comm);
  if (comm->connector.joinable()) comm->connector.join();
  comm->accepted = nullptr;
  while (comm->shared->under_way > 0 || comm->shared->recorded > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

// NCCL's function names with our own parameter names.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : result == ncclRemoteError ? "remote error" : "an error on purpose";
}

const char* ncclGetLastError(ncclComm_t /*comm*/) { return "in\nthe stand-in"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> number{0};
  std::memset(id, 0, sizeof(*id));
  id->internal[0] = 'd';
  id->internal[1] = static_cast<char>(++number);
  return next_faults.id;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  *comm = nullptr;
  if (next_messages == nullptr || next_messages->size() != ranks || next_messages->rank() != rank) {
    return ncclInvalidUsage;
  }
  if (config->blocking != 0 || config->maxCTAs <= 0 || id.internal[0] != 'd') return ncclInvalidArgument;
  if (next_faults.begin != ncclSuccess) return next_faults.begin;
  auto made_now = std::make_unique<ncclComm>();
  made_now->shared = std::make_shared<Shared>();
  made_now->shared->messages = std::move(next_messages);
  made_now->shared->faults = next_faults;
  made_now->connector = std::thread([shared = made_now->shared, id] { connect(*shared, id); });
  last_ended = made_now->shared->ended;
  *comm = made_now.release();
  ++made;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->shared->state;
  if (*state == ncclSuccess && comm->accepted) {
    *state = ncclInProgress;
    if (++comm->polls >= 3) std::exchange(comm->accepted, nullptr)();
  }
  if (*state == ncclSuccess && comm->finalizing && (comm->shared->under_way > 0 || comm->shared->recorded > 0)) {
    *state = ncclInProgress;
  }
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  const bool known = type == ncclFloat32 || type == ncclFloat64 || type == ncclBfloat16;
  if (from != to || op != ncclSum || count == 0 || !known) return ncclInvalidArgument;
  // Like NCCL: a new call is invalid while an earlier one is in progress, and after a failure returns that error again.
  const ncclResult_t state = comm->shared->state;
  if (comm->accepted || state == ncclInProgress) return ncclInvalidUsage;
  if (state != ncclSuccess) return state;
  const std::size_t number = comm->sums++;
  if (number == comm->shared->faults.refused_sum) return ncclInternalError;
  // A captured sum stays counted as long as its graph lives.
  cudaStreamCaptureStatus recording = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &recording) != cudaSuccess) return ncclUnhandledCudaError;
  const bool recorded = recording == cudaStreamCaptureStatusActive;
  auto user = counted(comm->shared, recorded ? &Shared::recorded : &Shared::under_way);
  auto launch = [=, shared = comm->shared] {
    enqueue(stream, "sum " + std::to_string(number), [=, user = user] { sum(*shared, to, count, type, number); });
  };
  if (number % 2 == 0) {
    launch();
    return ncclSuccess;
  }
  comm->accepted = std::move(launch);
  comm->polls = 0;
  return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->finalizing = true;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  end(comm);
  ++destroyed;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->shared->aborted = true;
  comm->shared->messages->interrupt();
  end(comm);
  ++aborted;
  return ncclSuccess;
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
