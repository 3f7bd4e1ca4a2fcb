#include "base/error.h"

#include <system_error>

namespace ddp {

std::string errno_text(int error_number) { return std::generic_category().message(error_number); }

void assertion_failed(const char* expression, const char* file, int line) {
  throw Error(ExitCode::internal,
              fmt::format("internal error: '{}' does not hold at {}:{}; please report it", expression, file, line));
}

}  // namespace ddp
