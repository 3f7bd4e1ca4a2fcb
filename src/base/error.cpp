#include "base/error.h"

#include <algorithm>
#include <system_error>

namespace ddp {

std::string one_line(std::string message) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::replace_if(message.begin(), message.end(), is_control, '?');
  return message;
}

std::string errno_text(int error_number) { return std::generic_category().message(error_number); }

void assertion_failed(const char* expression, const char* file, int line) {
  throw Error(ExitCode::internal,
              fmt::format("internal error: '{}' does not hold at {}:{}; please report it", expression, file, line));
}

}  // namespace ddp
