#include "base/error.h"

#include <algorithm>
#include <system_error>

#include "base/output.h"

namespace ddp {

std::string one_line(std::string message) {
  message = printable(message);
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message;
}

std::string errno_text(int error_number) { return std::generic_category().message(error_number); }

void assertion_failed(const char* expression, const char* file, int line) {
  throw Error(ExitCode::internal,
              fmt::format("internal error: '{}' does not hold at {}:{}; please report it", expression, file, line));
}

}  // namespace ddp
