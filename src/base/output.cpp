#include "base/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

namespace ddp {
namespace {

constexpr int kPatienceMilliseconds = 10'000;
// A pipe that poll() reports as writable accepts this much without blocking (PIPE_BUF).
constexpr std::size_t kPiece = 4096;

// Which of the first descriptors had no reader on the last attempt; later writes to these do not wait.
std::array<std::atomic<bool>, 3> stuck{};

}  // namespace

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
