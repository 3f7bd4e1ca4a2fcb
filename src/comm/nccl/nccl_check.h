// The check of every NCCL call.
//
//   DDP_NCCL(ncclGetUniqueId(&id));
//
// A failed call throws Error with the call, the source location, the host and NCCL's message: ExitCode::internal if the
// call was invalid, ExitCode::rank_lost if the communication failed. ncclInProgress is not an error: non-blocking
// communicators return it, and NcclConnection waits for completion.
#pragma once

#include <nccl.h>

#include <string>

namespace ddp {

void check_nccl(ncclResult_t code, const char* call, const char* file, int line);

// NCCL's message for a result, on one line.
std::string nccl_reason(ncclResult_t code);

// "NCCL 2.28.9": the version at run time, which may differ from the one at compile time.
std::string nccl_version();

}  // namespace ddp

#define DDP_NCCL(call) ::ddp::check_nccl((call), #call, __FILE__, __LINE__)
