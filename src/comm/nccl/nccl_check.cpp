#include "comm/nccl/nccl_check.h"

#include <algorithm>

#include "base/error.h"
#include "base/host.h"

namespace ddp {
namespace {

ExitCode exit_code(ncclResult_t code) {
  switch (code) {
    case ncclInternalError:
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return ExitCode::internal;
    default:
      return ExitCode::rank_lost;
  }
}

}  // namespace

void check_nccl(ncclResult_t code, const char* call, const char* file, int line) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  throw Error(exit_code(code),
              fmt::format("{}: NCCL: {} at {}:{}: {}", host_name(), call, file, line, nccl_reason(code)));
}

std::string nccl_reason(ncclResult_t code) {
  std::string text = ncclGetErrorString(code);
  // The last warning of any communicator of this process; the argument is unused.
  const char* details = ncclGetLastError(nullptr);
  if (details != nullptr && *details != '\0') text += fmt::format(" ({})", details);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string nccl_version() {
  int version = 0;
  DDP_NCCL(ncclGetVersion(&version));
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace ddp
