// Threads where the system may permit no more of them: ulimit -u, pids.max of a container, TasksMax of a service.
//
//   std::jthread beats = start_thread("heartbeats", [](const std::stop_token&) { heartbeat(); });
//   run_parts(8, [](int part) { log_info("part {}", part); });   // on 8 threads, or on as many as there may be
//
// A thread that a run needs is an Error with one line; work that is only divided among threads is done by fewer.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace ddp {

// "cannot start a thread for PURPOSE: REASON; ...", with the limits that apply and how to raise them.
std::string no_thread_text(std::string_view purpose, const std::error_code& reason);
// Throws Error(preflight, no_thread_text()).
[[noreturn]] void no_thread(std::string_view purpose, const std::error_code& reason);

template <class Work>
std::jthread start_thread(std::string_view purpose, Work&& work) {
  try {
    return std::jthread(std::forward<Work>(work));
  } catch (const std::system_error& error) {
    no_thread(purpose, error.code());
  }
}

// Calls work(0) to work(parts - 1), which must not throw, each on a thread of its own if possible. The calling thread takes
// part 0 and those for which there is no thread.
void run_parts(int parts, const std::function<void(int)>& work);

// Tries how many of `count` further threads can exist at the same time.
int startable_threads(int count);

}  // namespace ddp
