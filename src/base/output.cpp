#include "base/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>

namespace ddp {
namespace {

constexpr int kPatienceMilliseconds = 10'000;
// A pipe that poll() reports as writable accepts this much without blocking (PIPE_BUF).
constexpr std::size_t kPiece = 4096;

// Which of the first descriptors had no reader on the last attempt; later writes to these do not wait.
std::array<std::atomic<bool>, 3> stuck{};

// The length of the UTF-8 character at the beginning of `text`, or 0 if there is none; sets its code point.
std::size_t character_at(std::string_view text, std::uint32_t& code) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  if (length == 0 || length > text.size()) return 0;
  code = length == 1 ? first : first & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0U) != 0x80U) return 0;
    code = code << 6U | (next & 0x3FU);
  }
  const bool too_long = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return too_long || surrogate || code > 0x10FFFF ? 0 : length;
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
    std::uint32_t code = 0;
    const std::size_t length = character_at(text, code);
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
