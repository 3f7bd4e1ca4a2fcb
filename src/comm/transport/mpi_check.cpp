#include "comm/transport/mpi_check.h"

#include <mpi.h>

#include <array>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/host.h"

namespace ddp {
namespace {

ExitCode exit_code(int error_class) {
  switch (error_class) {
    case MPI_ERR_BUFFER:
    case MPI_ERR_COUNT:
    case MPI_ERR_TYPE:
    case MPI_ERR_TAG:
    case MPI_ERR_COMM:
    case MPI_ERR_RANK:
    case MPI_ERR_REQUEST:
    case MPI_ERR_ROOT:
    case MPI_ERR_ARG:
    case MPI_ERR_TRUNCATE:
      return ExitCode::internal;
    case MPI_ERR_NO_MEM:
      return ExitCode::out_of_memory;
    default:
      return ExitCode::rank_lost;
  }
}

}  // namespace

void check_mpi(int code, const char* call, const char* file, int line) {
  if (code == MPI_SUCCESS) return;
  int error_class = MPI_ERR_UNKNOWN;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  static_cast<void>(MPI_Error_class(code, &error_class));
  static_cast<void>(MPI_Error_string(code, text.data(), &length));
  const std::string_view reason(text.data(), static_cast<std::size_t>(length));
  throw Error(exit_code(error_class), fmt::format("host {}: {} at {}:{}: {}", host_name(), call, file, line, reason));
}

}  // namespace ddp
