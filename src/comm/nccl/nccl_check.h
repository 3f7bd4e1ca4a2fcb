// One place that checks what NCCL returns.
//
//   DDP_NCCL(ncclGetUniqueId(&id));
//
// A failed call throws Error with the call, the place, the host and NCCL's own words: ExitCode::internal where the call
// itself was wrong, ExitCode::rank_lost where the communication failed. ncclInProgress is no error: communicators that
// never block return it, and NcclConnection waits for its end.
#pragma once

#include <nccl.h>

#include <string>

namespace ddp {

void check_nccl(ncclResult_t code, const char* call, const char* file, int line);

// NCCL's words for a result, in one line.
std::string nccl_reason(ncclResult_t code);

// "NCCL 2.28.9": the library's that runs, which need not be the one that this was compiled with.
std::string nccl_version();

}  // namespace ddp

#define DDP_NCCL(call) ::ddp::check_nccl((call), #call, __FILE__, __LINE__)
