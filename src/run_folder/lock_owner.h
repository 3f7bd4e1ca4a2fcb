// The owner of the lock of a run folder, and whether that process is still alive.
//
//   LockOwner mine = this_process();
//   std::string text = to_text(mine);          // the content of RUN/run.lock
//   if (same_machine(mine, mine) && !lives(mine)) ...   // it was killed
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ddp {

struct LockOwner {
  std::string host;
  std::string boot;           // boot ID of the kernel
  std::string pid_namespace;  // processes have the same numbers only within one, e.g. a container
  std::int64_t pid = 0;
  std::uint64_t started = 0;  // in ticks since boot, to distinguish processes with the same PID
  std::string since;          // for messages
  std::string token;          // unique to this lock

  friend bool operator==(const LockOwner&, const LockOwner&) = default;
};

LockOwner this_process();

// One JSON object on one line.
std::string to_text(const LockOwner& owner);
// nullopt for any other text, such as a damaged lock.
std::optional<LockOwner> parse_owner(const std::string& text);

// "MACHINE-PID-STARTED-TOKEN", for file names: identifies the owner even if nothing has been written to the file yet.
std::string name_of(const LockOwner& owner);
// Whether a file of this name belongs to a process of this machine that has exited.
bool abandoned(const std::string& name, const LockOwner& self);

// Whether both share a PID namespace, so that lives() is meaningful.
bool same_machine(const LockOwner& a, const LockOwner& b);
// Whether a process of this machine exists and is not a zombie.
bool lives(const LockOwner& owner);

}  // namespace ddp
