#include "job/hangs/thread_states.h"

#include <fmt/core.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/text/text.h"

namespace ddp {
namespace {

struct SystemCall {
  long number;
  std::string_view name;
  bool on_file;
};

constexpr std::array kSystemCalls = {
    SystemCall{SYS_read, "read", true},
    SystemCall{SYS_pread64, "pread", true},
    SystemCall{SYS_readv, "readv", true},
    SystemCall{SYS_write, "write", true},
    SystemCall{SYS_pwrite64, "pwrite", true},
    SystemCall{SYS_writev, "writev", true},
    SystemCall{SYS_openat, "open", true},
    SystemCall{SYS_close, "close", true},
    SystemCall{SYS_fsync, "fsync", true},
    SystemCall{SYS_fdatasync, "fdatasync", true},
    SystemCall{SYS_fstat, "fstat", true},
    SystemCall{SYS_statx, "stat", true},
    SystemCall{SYS_getdents64, "getdents", true},
    SystemCall{SYS_renameat2, "rename", true},
    SystemCall{SYS_unlinkat, "unlink", true},
#ifdef SYS_open
    SystemCall{SYS_open, "open", true},
    SystemCall{SYS_stat, "stat", true},
    SystemCall{SYS_rename, "rename", true},
    SystemCall{SYS_unlink, "unlink", true},
#endif
#ifdef SYS_newfstatat
    SystemCall{SYS_newfstatat, "stat", true},
#endif
    SystemCall{SYS_futex, "futex", false},
    SystemCall{SYS_nanosleep, "sleep", false},
    SystemCall{SYS_clock_nanosleep, "sleep", false},
    SystemCall{SYS_ioctl, "ioctl", false},
    SystemCall{SYS_ppoll, "poll", false},
#ifdef SYS_poll
    SystemCall{SYS_poll, "poll", false},
    SystemCall{SYS_epoll_wait, "epoll", false},
    SystemCall{SYS_pause, "pause", false},
#endif
    SystemCall{SYS_epoll_pwait, "epoll", false},
    SystemCall{SYS_rt_sigsuspend, "sigsuspend", false},
    SystemCall{SYS_rt_sigtimedwait, "sigwait", false},
};

const SystemCall* find_system_call(long number) {
  const auto* const found = std::find_if(kSystemCalls.begin(), kSystemCalls.end(),
                                         [number](const SystemCall& each) { return each.number == number; });
  return found == kSystemCalls.end() ? nullptr : found;
}

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

struct ThreadState {
  std::string name;
  char state = '?';
  long system_call = -1;  // -1: none, or unknown
};

ThreadState state_of(const std::filesystem::path& folder) {
  ThreadState thread;
  thread.name = first_line(folder / "comm");
  const std::string status = first_line(folder / "stat");
  const std::size_t name_end = status.rfind(')');
  if (name_end != std::string::npos && name_end + 2 < status.size()) thread.state = status[name_end + 2];
  // "running", or the number of the system call and its arguments; -1 between system calls.
  std::istringstream call(first_line(folder / "syscall"));
  if (!(call >> thread.system_call)) thread.system_call = -1;
  return thread;
}

// The files of a process are not open to one that is about to die.
std::vector<std::filesystem::path> thread_folders(pid_t process) {
  std::vector<std::filesystem::path> folders;
  std::error_code error;
  std::filesystem::directory_iterator at(fmt::format("/proc/{}/task", process), error);
  for (const std::filesystem::directory_iterator end; !error && at != end; at.increment(error)) {
    folders.push_back(at->path());
  }
  return folders;
}

}  // namespace

std::string system_call_name(long number) {
  const SystemCall* const call = find_system_call(number);
  return call == nullptr ? "" : std::string(call->name);
}

ThreadStates thread_states(pid_t process) {
  const std::string main_thread = std::to_string(process);
  // The watchdog and the exchange of pulses say nothing about the work.
  constexpr std::array<std::string_view, 3> kOwn = {"watchdog", "pulses", "signals"};
  ThreadStates states;
  std::string program;
  std::vector<std::string> words;
  std::vector<std::pair<std::filesystem::path, ThreadState>> threads;
  for (const std::filesystem::path& folder : thread_folders(process)) {
    threads.emplace_back(folder, state_of(folder));
    if (folder.filename() == main_thread) program = threads.back().second.name;
  }
  std::map<char, std::uint64_t> others;
  std::map<std::pair<std::string, std::string>, std::uint64_t> helpers;
  for (const auto& [folder, thread] : threads) {
    const bool main = folder.filename() == main_thread;
    if (std::find(kOwn.begin(), kOwn.end(), thread.name) != kOwn.end()) continue;
    if (!main && thread.name == program) {
      ++others[thread.state];
      continue;
    }
    const SystemCall* const call = find_system_call(thread.system_call);
    if (thread.state == 'D' || (call != nullptr && call->on_file)) states.file_call = true;
    const std::string name = call == nullptr ? "" : fmt::format(" {}", call->name);
    if (main) {
      words.push_back(fmt::format("main {}{}", thread.state, name));
    } else {
      ++helpers[{thread.name, fmt::format("{}{}", thread.state, name)}];
    }
  }
  for (const auto& [helper, count] : helpers) {
    words.push_back(count == 1 ? fmt::format("{} {}", helper.first, helper.second)
                               : fmt::format("{} {}", counted(count, helper.first), helper.second));
  }
  for (const auto& [state, count] : others) words.push_back(fmt::format("{} {}", counted(count, "other"), state));
  states.text = join(words);
  return states;
}

}  // namespace ddp
