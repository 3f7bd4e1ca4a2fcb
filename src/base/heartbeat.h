// Progress reports of this process, from which the watchdog (job/watchdog.h) distinguishes slow from hung.
//
//   heartbeat();                                              // progress: a sample was read, a block written
//   const Activity activity("reading " + path.string());      // what this thread is doing, for messages
//   const RankWait wait("all_reduce", 3);                     // it is waiting for other ranks, rank 3 among them
//
// Thread-safe, and cheap enough to call for every file and message.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <thread>

namespace ddp {

void heartbeat() noexcept;
// The number of heartbeats so far.
std::uint64_t heartbeats() noexcept;

// What a thread is doing until the end of the scope. The innermost one of a thread counts.
class Activity {
 public:
  explicit Activity(std::string text) : Activity(std::move(text), false, kNoRank) {}
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  static constexpr int kNoRank = -1;
  struct Entry {
    std::thread::id thread;
    std::string text;
    bool waits_for_ranks = false;
    int rank = kNoRank;
  };

 protected:
  Activity(std::string text, bool waits_for_ranks, int rank);

 private:
  std::list<Entry>::iterator place_;
};

// This thread is waiting for other ranks, so this process is not to blame. `rank` is one of them, if known.
class RankWait : public Activity {
 public:
  explicit RankWait(std::string_view operation, int rank = kNoRank) : Activity(std::string(operation), true, rank) {}
};

// What the process is doing, for the watchdog.
struct Doing {
  bool waits_for_ranks = false;  // of the main thread
  int rank = Activity::kNoRank;  // one of those it is waiting for
  std::string text;              // "reading data/cat/7.jpg", or "" if unknown
};
// `main_thread` is the one whose waiting counts; the activity of another is reported if the main thread has none.
Doing what_is_done(std::thread::id main_thread);

// --timeout: seconds without progress after which waiting ranks give up; 600 until it is known.
double rank_timeout() noexcept;
void set_rank_timeout(double seconds) noexcept;

// The clock for timeouts: base/clock.h until a watchdog runs, then the seconds in which this process was not suspended,
// so a job that is suspended and continued hours later does not time out.
double waiting_clock() noexcept;
// For the watchdog: takes over the clock, which then shows `seconds`.
void set_waiting_clock(double seconds) noexcept;
// For the watchdog: returns to base/clock.h.
void drop_waiting_clock() noexcept;

// When another rank last made progress, by waiting_clock(); initially very long ago.
double progress_elsewhere() noexcept;
void note_progress_elsewhere() noexcept;

}  // namespace ddp
