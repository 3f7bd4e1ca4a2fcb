// Slow storage, for LD_PRELOAD: opening a file whose name ends with $SLOW_SUFFIX takes $SLOW_OPEN_MS, and syncing any file
// $SLOW_SYNC_MS.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace {

void pause_for(const char* variable) {
  const char* text = std::getenv(variable);
  if (text != nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(text)));
}

int slow_open(int folder, const char* path, int flags, unsigned mode) {
  const char* suffix = std::getenv("SLOW_SUFFIX");
  if (suffix != nullptr && std::string_view(path).ends_with(suffix)) pause_for("SLOW_OPEN_MS");
  return static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
}

}  // namespace

extern "C" int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const unsigned mode = (flags & O_CREAT) != 0 ? va_arg(rest, unsigned) : 0;
  va_end(rest);
  return slow_open(AT_FDCWD, path, flags, mode);
}
extern "C" int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const unsigned mode = (flags & O_CREAT) != 0 ? va_arg(rest, unsigned) : 0;
  va_end(rest);
  return slow_open(AT_FDCWD, path, flags, mode);
}
extern "C" int fsync(int descriptor) {
  pause_for("SLOW_SYNC_MS");
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}
extern "C" int fdatasync(int descriptor) {
  pause_for("SLOW_SYNC_MS");
  return static_cast<int>(syscall(SYS_fdatasync, descriptor));
}
