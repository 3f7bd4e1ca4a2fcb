// A read() that never returns for files in a folder named "never-answers", for LD_PRELOAD.
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>

extern "C" ssize_t read(int descriptor, void* buffer, size_t bytes) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = readlink(link.c_str(), path.data(), path.size() - 1);
  if (length > 0 && std::string_view(path.data()).find("/never-answers/") != std::string_view::npos) {
    for (;;) pause();
  }
  return syscall(SYS_read, descriptor, buffer, bytes);
}
