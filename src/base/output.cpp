#include "base/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/text/utf8.h"

namespace ddp {
namespace {

constexpr int kPatienceMilliseconds = 10'000;
// A pipe that poll() reports as writable accepts this much without blocking (PIPE_BUF).
constexpr std::size_t kPiece = 4096;

// Which of the first descriptors had no reader on the last attempt; later writes to these do not wait.
std::array<std::atomic<bool>, 3> stuck{};

// The code point of a whole character.
std::uint32_t code_of(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  std::uint32_t code = character.size() == 1 ? first : first & (0xFFU >> (character.size() + 1));
  for (const char next : character.substr(1)) code = code << 6U | (static_cast<unsigned char>(next) & 0x3FU);
  return code;
}

// Control characters, and those that reverse what is shown or end a line.
bool is_obeyed(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F) || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::uint32_t code = length == 0 ? 0 : code_of(text.substr(0, length));
    if (length == 0) {
      result += fmt::format("\\x{:02X}", static_cast<unsigned char>(text[0]));
    } else if (code != '\n' && is_obeyed(code)) {
      result += '?';
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

bool write_patiently(int descriptor, std::string_view text) noexcept {
  const bool known = descriptor >= 0 && static_cast<std::size_t>(descriptor) < stuck.size();
  std::atomic<bool> unknown{false};
  std::atomic<bool>& is_stuck = known ? stuck.at(static_cast<std::size_t>(descriptor)) : unknown;
  while (!text.empty()) {
    pollfd place{descriptor, POLLOUT, 0};
    const int ready = poll(&place, 1, is_stuck ? 0 : kPatienceMilliseconds);
    if (ready < 0 && errno == EINTR) continue;
    is_stuck = ready == 0;
    if (ready <= 0) return false;
    const ssize_t written = write(descriptor, text.data(), std::min(text.size(), kPiece));
    if (written < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return false;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace ddp
