// What the threads of a process are doing, as Linux shows it in /proc.
//
//   const ThreadStates states = thread_states(getpid());
//   states.text;          // "main S futex, loader D read, 3 others S"
//   states.file_call;     // the loader is in a system call on a file
#pragma once

#include <sys/types.h>

#include <string>

namespace ddp {

struct ThreadStates {
  // The main thread and those with a name of their own: state (R, S, D, T ... as in ps) and system call, if any; the
  // others are counted by state. "" if the process does not exist.
  std::string text;
  // The main or a named thread waits for a file system: it is in state D, or in a system call on a file.
  bool file_call = false;
};

// The system calls of another user's process, or in some containers, cannot be read: then only the states are known.
ThreadStates thread_states(pid_t process);

// "read" for SYS_read, or "" for those that matter little.
std::string system_call_name(long number);

}  // namespace ddp
