// Loaded before the C library (LD_PRELOAD), kills the process with SIGKILL right before its Nth operation that changes
// files below a folder. This simulates a power failure or a scheduler's kill at every point that could matter.
//
//   DDP_KILL_UNDER=/tmp/run DDP_KILL_AT=57 LD_PRELOAD=libkill_at.so ddp_train --output /tmp/run ...
//   DDP_KILL_UNDER=/tmp/run DDP_KILL_COUNT=/tmp/count LD_PRELOAD=...   # counts operations; at exit, writes the number
//
// If this operation is a write, the first half of its bytes is written.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <string>

namespace {

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

std::string variable(const char* name) {
  const char* value = getenv(name);
  return value != nullptr ? value : "";
}

struct Campaign {
  std::string under = variable("DDP_KILL_UNDER");
  long at = atol(variable("DDP_KILL_AT").c_str());
  std::string count_file = variable("DDP_KILL_COUNT");
  std::atomic<long> count{0};

  Campaign() = default;
  Campaign(const Campaign&) = delete;
  Campaign& operator=(const Campaign&) = delete;
  ~Campaign() {
    if (count_file.empty()) return;
    FILE* file = fopen(count_file.c_str(), "w");
    if (file == nullptr) return;
    fprintf(file, "%ld\n", count.load());
    fclose(file);
  }
};

Campaign& campaign() {
  static Campaign instance;
  return instance;
}

std::string path_of(int descriptor) {
  char link[64];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  char target[4096];
  const ssize_t size = readlink(link, target, sizeof(target));
  return size > 0 ? std::string(target, static_cast<size_t>(size)) : "";
}

bool concerns(const std::string& path) {
  const std::string& under = campaign().under;
  return !under.empty() && path.starts_with(under);
}

bool concerns(int folder, const char* path) {
  if (path[0] == '/' || folder == AT_FDCWD) return concerns(path);
  return concerns(path_of(folder) + "/" + path);
}

// Counts an operation; returns true if it is the one to be killed at.
bool is_the_one() { return ++campaign().count == campaign().at; }

void count_one() {
  if (is_the_one()) kill(getpid(), SIGKILL);
}

constexpr int kWrites = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;

int mode_of(int flags, va_list arguments) { return (flags & O_CREAT) != 0 ? va_arg(arguments, int) : 0; }

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const int mode = mode_of(flags, arguments);
  va_end(arguments);
  if ((flags & kWrites) != 0 && concerns(AT_FDCWD, path)) count_one();
  static const auto real = next<int (*)(const char*, int, ...)>("open");
  return real(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const int mode = mode_of(flags, arguments);
  va_end(arguments);
  if ((flags & kWrites) != 0 && concerns(AT_FDCWD, path)) count_one();
  static const auto real = next<int (*)(const char*, int, ...)>("open64");
  return real(path, flags, mode);
}

ssize_t write(int descriptor, const void* bytes, size_t size) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  if (concerns(path_of(descriptor)) && is_the_one()) {
    (void)real(descriptor, bytes, size / 2);
    kill(getpid(), SIGKILL);
  }
  return real(descriptor, bytes, size);
}

int fsync(int descriptor) {
  if (concerns(path_of(descriptor))) count_one();
  static const auto real = next<int (*)(int)>("fsync");
  return real(descriptor);
}

int rename(const char* from, const char* to) {
  if (concerns(AT_FDCWD, from) || concerns(AT_FDCWD, to)) count_one();
  static const auto real = next<int (*)(const char*, const char*)>("rename");
  return real(from, to);
}

int link(const char* from, const char* to) {
  if (concerns(AT_FDCWD, to)) count_one();
  static const auto real = next<int (*)(const char*, const char*)>("link");
  return real(from, to);
}

int symlink(const char* target, const char* path) {
  if (concerns(AT_FDCWD, path)) count_one();
  static const auto real = next<int (*)(const char*, const char*)>("symlink");
  return real(target, path);
}

int unlink(const char* path) {
  if (concerns(AT_FDCWD, path)) count_one();
  static const auto real = next<int (*)(const char*)>("unlink");
  return real(path);
}

int remove(const char* path) {
  if (concerns(AT_FDCWD, path)) count_one();
  static const auto real = next<int (*)(const char*)>("remove");
  return real(path);
}

int unlinkat(int folder, const char* path, int flags) {
  if (concerns(folder, path)) count_one();
  static const auto real = next<int (*)(int, const char*, int)>("unlinkat");
  return real(folder, path, flags);
}

int rmdir(const char* path) {
  if (concerns(AT_FDCWD, path)) count_one();
  static const auto real = next<int (*)(const char*)>("rmdir");
  return real(path);
}

int mkdir(const char* path, mode_t mode) {
  if (concerns(AT_FDCWD, path)) count_one();
  static const auto real = next<int (*)(const char*, mode_t)>("mkdir");
  return real(path, mode);
}
}
