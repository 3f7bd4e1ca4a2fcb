#include "metrics/process_times.h"

#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <system_error>

namespace ddp {
namespace {

struct ThreadTimes {
  double cpu = 0;
  double core_wait = 0;
};

// A thread may end meanwhile; its file is then missing.
ThreadTimes thread_times(const std::filesystem::path& task) {
  constexpr double kNanosecond = 1e-9;
  std::ifstream file(task / "schedstat");
  double running = 0;
  double waiting = 0;
  if (!(file >> running >> waiting)) return {};
  return {running * kNanosecond, waiting * kNanosecond};
}

}  // namespace

ProcessTimes process_times() {
  constexpr double kKibibyte = 1024;
  ProcessTimes times;
  std::error_code error;
  for (auto task = std::filesystem::directory_iterator("/proc/self/task", error);
       !error && task != std::filesystem::directory_iterator(); task.increment(error)) {
    const ThreadTimes thread = thread_times(task->path());
    times.cpu += thread.cpu;
    times.core_wait += thread.core_wait;
  }
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) times.memory = static_cast<double>(usage.ru_maxrss) * kKibibyte;
  return times;
}

double thread_core_wait() { return thread_times("/proc/thread-self").core_wait; }

}  // namespace ddp
