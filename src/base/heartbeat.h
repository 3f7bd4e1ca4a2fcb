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
// How many there have been.
std::uint64_t heartbeats() noexcept;

// What a thread does from here to the end of the scope. The innermost one of a thread counts.
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

// This thread waits for other ranks: no fault of this process. `rank` is one of those that it waits for, if known.
class RankWait : public Activity {
 public:
  explicit RankWait(std::string_view operation, int rank = kNoRank) : Activity(std::string(operation), true, rank) {}
};

// What the process does, as the watchdog sees it.
struct Doing {
  bool waits_for_ranks = false;  // the main thread does
  int rank = Activity::kNoRank;  // one that it waits for
  std::string text;              // "reading data/cat/7.jpg", or "" where nobody has said
};
// `main_thread` is the one whose waiting counts; of others, what they do is told where the main thread waits for none.
Doing what_is_done(std::thread::id main_thread);

// Seconds without progress after which ranks that wait give up, as --timeout says; 600 until it is known.
double rank_timeout() noexcept;
void set_rank_timeout(double seconds) noexcept;

// The clock of waits: the seconds of base/clock.h until a watchdog runs, then those in which this process was awake. So
// a job that was suspended as a whole and goes on hours later finds no wait too long.
double waiting_clock() noexcept;
// For the watchdog: it keeps the clock from now on, which then shows `seconds`.
void set_waiting_clock(double seconds) noexcept;
// For the watchdog: back to the other clock.
void drop_waiting_clock() noexcept;

// When another rank was last seen to make progress, by waiting_clock(); before the first time: very long ago.
double progress_elsewhere() noexcept;
void note_progress_elsewhere() noexcept;

}  // namespace ddp
