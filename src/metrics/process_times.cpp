#include "metrics/process_times.h"

#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <system_error>

namespace ddp {

ProcessTimes process_times() {
  constexpr double kNanosecond = 1e-9;
  constexpr double kKibibyte = 1024;
  ProcessTimes times;
  std::error_code error;
  // A thread may end meanwhile; its file is then missing.
  for (auto task = std::filesystem::directory_iterator("/proc/self/task", error);
       !error && task != std::filesystem::directory_iterator(); task.increment(error)) {
    std::ifstream file(task->path() / "schedstat");
    double running = 0;
    double waiting = 0;
    if (!(file >> running >> waiting)) continue;
    times.cpu += running * kNanosecond;
    times.core_wait += waiting * kNanosecond;
  }
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) times.memory = static_cast<double>(usage.ru_maxrss) * kKibibyte;
  return times;
}

}  // namespace ddp
