// The lock of a run folder: only one process at a time writes to it, on any host that shares the folder.
//
//   RunLock lock("runs/lenet-glyphs");   // throws Error(checkpoint) if a living process holds it
//   lock.check_held();                   // throws if the folder was deleted, moved or taken over
//
// Note [The lock on network file systems]
// The lock is the file RUN/run.lock, created by link(2), which succeeds for exactly one process on every file system,
// whereas flock() may be local to a host. The file identifies its owner. A process on this machine is looked up; one
// elsewhere (on another host or in another container) is alive if it renews the modification time of the file, every 5
// s. A lock without a living owner is taken over: the right to do so is a second such file, named after the content to
// be replaced. Ages are differences between times of the file server, so clocks need not agree.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/status/last_acts.h"

namespace ddp {

struct LockOwner;

// In seconds.
struct LockTiming {
  double look = 0.5;   // between checks of the lock
  double renew = 5;    // between renewals of its time
  double stale = 60;   // without a renewal, after which an owner on another host is considered dead
  double leaving = 2;  // grace period for an owner on this machine to exit
};

inline constexpr const char* kLockFile = "run.lock";

class RunLock {
 public:
  // Creates the folder if it is missing.
  explicit RunLock(std::filesystem::path folder, const LockTiming& timing = {});
  // Removes the lock, and the folder if this object created it and it is empty. A process that exits without running
  // destructors removes the lock by perform_last_acts().
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // A file system that is unmounted for a while is no problem of the lock. Uses the result of the last check, at most half a second ago; cheap enough for every step.
  void check_held();
  // Checks immediately.
  void check_held_now();

 private:
  struct Seen;
  class Watch;

  void acquire(const LockOwner& self);
  void release() noexcept;
  void make_folder();
  void write_claim() const;
  bool create_exclusively(const std::filesystem::path& path) const;
  bool take_over(const Seen& seen) const;
  void sweep() const;
  void renew() const noexcept;
  bool is_ours() const;
  // Why the lock has been lost; empty if it has not.
  std::string problem() const;
  // Whether the file system of the folder is not mounted at the moment.
  bool away() const;
  void watch(const std::stop_token& stop);

  std::filesystem::path folder_;
  std::filesystem::path path_;
  std::filesystem::path claim_;
  LockTiming timing_;
  std::string text_;
  dev_t device_ = 0;  // of the folder
  bool made_folder_ = false;
  bool held_ = false;
  std::atomic<bool> given_up_{false};  // by the last act: this process ends
  mutable std::mutex mutex_;
  std::condition_variable_any wakes_;
  std::string problem_;
  std::jthread watcher_;
  std::optional<LastAct> last_act_;
};

}  // namespace ddp
