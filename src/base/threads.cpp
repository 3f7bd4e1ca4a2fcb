#include "base/threads.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <vector>

#include "base/error.h"

namespace ddp {
namespace {

// The smallest pids.max of a control group and those above it; nullopt if none is limited.
std::optional<std::uint64_t> limit_in(const std::filesystem::path& root, std::filesystem::path group) {
  std::optional<std::uint64_t> limit;
  for (;; group = group.parent_path()) {
    std::ifstream file(root / group.relative_path() / "pids.max");
    std::uint64_t value = 0;
    if (file >> value) limit = std::min(limit.value_or(value), value);
    if (!group.has_relative_path()) return limit;
  }
}

// The limit of the control group of this process: "0::/system.slice/a" in version 2, "9:pids:/docker/..." in version 1.
std::optional<std::uint64_t> group_limit() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && controllers.find("pids") == std::string::npos) continue;
    const std::filesystem::path root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/pids";
    if (const auto limit = limit_in(root, line.substr(second + 1))) return limit;
  }
  return std::nullopt;
}

std::string limits_text() {
  std::string text;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    text += fmt::format("; this user may have {} processes and threads (ulimit -u)", limit.rlim_cur);
  }
  if (const auto group = group_limit()) {
    text += fmt::format("; this container or job may have {} processes and threads (pids.max)", *group);
  }
  return text;
}

}  // namespace

std::string no_thread_text(std::string_view purpose, const std::error_code& reason) {
  return fmt::format(
      "cannot start a thread for {}: {}{}; raise the limit (ulimit -u, --pids-limit of Docker, TasksMax of systemd), "
      "or "
      "use fewer ranks on this host, --threads or --workers",
      purpose, reason.message(), limits_text());
}

void no_thread(std::string_view purpose, const std::error_code& reason) {
  throw Error(ExitCode::preflight, no_thread_text(purpose, reason));
}

void run_parts(int parts, const std::function<void(int)>& work) {
  std::vector<std::jthread> others;
  others.reserve(static_cast<std::size_t>(std::max(parts, 1)));
  int started = 1;
  try {
    for (; started < parts; ++started) others.emplace_back([&work, started] { work(started); });
  } catch (const std::system_error&) {
    // The rest is done below.
  }
  work(0);
  for (int part = started; part < parts; ++part) work(part);
}

int startable_threads(int count) {
  std::mutex mutex;
  std::condition_variable tried;
  bool done = false;
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(std::max(count, 0)));
  const auto wait = [&] {
    std::unique_lock lock(mutex);
    tried.wait(lock, [&] { return done; });
  };
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back(wait);
  } catch (const std::system_error&) {
    // As many as there are.
  }
  {
    const std::scoped_lock lock(mutex);
    done = true;
  }
  tried.notify_all();
  return static_cast<int>(threads.size());
}

}  // namespace ddp
