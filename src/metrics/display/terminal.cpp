#include "metrics/display/terminal.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/text/text.h"

namespace ddp {
namespace {

// 0 unless it is a terminal that reports its width.
int width_of(int descriptor) {
  winsize size{};
  if (::isatty(descriptor) == 0 || ::ioctl(descriptor, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody calls setenv
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

Terminal::Terminal(int descriptor) : descriptor_(descriptor) {
  const bool behind_mpirun = !environment("OMPI_COMM_WORLD_RANK").empty() && descriptor == STDERR_FILENO;
  if ((::isatty(descriptor_) == 0 && !behind_mpirun) || environment("TERM") == "dumb") return;
  // See Note [Terminals behind mpirun].
  if (width_of(descriptor_) == 0) {
    const int same = descriptor == STDERR_FILENO ? STDERR_FILENO : STDOUT_FILENO;
    const std::string parents_output = fmt::format("/proc/{}/fd/{}", ::getppid(), same);
    const int opened = ::open(parents_output.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0) return;
    descriptor_ = opened;
    owned_ = true;
  }
  interactive_ = width_of(descriptor_) > 0;
}

Terminal::~Terminal() {
  if (owned_) ::close(descriptor_);
}

int Terminal::columns() const {
  const int width = width_of(descriptor_);
  if (width > 0) return width;
  // NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion): 0 if it is not a number
  const int columns = std::atoi(std::string(environment("COLUMNS")).c_str());
  return columns > 0 ? columns : 80;
}

bool Terminal::coloured() const { return interactive_ && environment("NO_COLOR").empty(); }

std::string painted(std::string_view text, Paint paint) {
  const char* code = paint == Paint::bold ? "1" : paint == Paint::good ? "1;32" : "33";
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string value = lower_case(std::string(environment(name)));
    if (value.empty()) continue;
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace ddp
