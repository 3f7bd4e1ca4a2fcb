// Faults of the file system: functions of the C library, which the program finds here first.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "fault.h"

namespace {

std::string path_of(int descriptor) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = readlink(link.c_str(), path.data(), path.size() - 1);
  return length > 0 ? std::string(path.data()) : "";
}

// Whether the descriptor is that of a file, and not of a pipe or a socket.
bool any_fault_of_files() {
  using ddp::faults::wanted;
  return wanted("full-disk") || wanted("no-disk") || wanted("slow-disk") || wanted("short-write");
}

thread_local bool within = false;

}  // namespace

extern "C" ssize_t write(int descriptor, const void* buffer, size_t bytes) {
  if (!within && any_fault_of_files()) {
    within = true;
    const std::string path = path_of(descriptor);
    if (path.starts_with('/') && !path.starts_with("/dev/")) {
      if (ddp::faults::due("full-disk", "", path)) {
        within = false;
        errno = ENOSPC;
        return -1;
      }
      if (ddp::faults::due("no-disk", "", path)) {
        within = false;
        errno = EIO;
        return -1;
      }
      if (const auto fault = ddp::faults::due("slow-disk", "", path)) ddp::faults::sleep_for(fault->seconds);
      if (bytes > 1 && ddp::faults::due("short-write", "", path)) bytes /= 2;
    }
    within = false;
  }
  return syscall(SYS_write, descriptor, buffer, bytes);
}

extern "C" int fsync(int descriptor) {
  if (const auto fault = ddp::faults::due("slow-disk", "", path_of(descriptor))) {
    ddp::faults::sleep_for(fault->seconds);
  }
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

extern "C" int rename(const char* from, const char* to) {
  if (ddp::faults::due("lost-rename", "", to)) return 0;
  return static_cast<int>(syscall(SYS_renameat2, -100 /* AT_FDCWD */, from, -100, to, 0));
}
