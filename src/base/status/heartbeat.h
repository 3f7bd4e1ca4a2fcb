// Progress reports of this process, from which the watchdog (job/hangs/watchdog.h) distinguishes slow from hung.
//
//   heartbeat();                                              // progress: a sample was read, a block written
//   const Activity activity("training");                      // what this thread is doing, for messages
//   const FileActivity reading("reading " + path.string());  // it is in a file system call
//   const LongActivity evaluation("evaluating");                // --hang-timeout does not apply meanwhile
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
  enum class Kind {
    work,
    file_call,  // reading or writing a file
    long_work,  // may take long without a sign of progress
    rank_wait,  // waiting for other ranks
  };

  explicit Activity(std::string text) : Activity(std::move(text), Kind::work, kNoRank) {}
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  static constexpr int kNoRank = -1;
  struct Entry {
    std::thread::id thread;
    std::string text;
    Kind kind = Kind::work;
    int rank = kNoRank;
  };

 protected:
  Activity(std::string text, Kind kind, int rank);

 private:
  std::list<Entry>::iterator place_;
};

// This thread is waiting for other ranks, so this process is not to blame. `rank` is one of them, if known.
class RankWait : public Activity {
 public:
  explicit RankWait(std::string_view operation, int rank = kNoRank)
      : Activity(std::string(operation), Kind::rank_wait, rank) {}
};

// The thread opens, reads or writes a file, which takes as long as the file system takes.
class FileActivity : public Activity {
 public:
  explicit FileActivity(std::string text) : Activity(std::move(text), Kind::file_call, kNoRank) {}
};

// Known to take long, such as an evaluation, a checkpoint or the building of a cache: no hang before --timeout.
class LongActivity : public Activity {
 public:
  explicit LongActivity(std::string text) : Activity(std::move(text), Kind::long_work, kNoRank) {}
};

// What the process is doing, for the watchdog.
struct Doing {
  bool waits_for_ranks = false;  // of the main thread
  bool long_work = false;        // the main thread is within a LongActivity
  bool file_call = false;        // `text` is a FileActivity
  int rank = Activity::kNoRank;  // one of those it is waiting for
  std::string text;              // "reading data/cat/7.jpg", or "" if unknown
};
// `main_thread` is the one whose waiting counts; the activity of another is reported if the main thread has none.
Doing what_is_done(std::thread::id main_thread);

// --timeout: seconds without progress after which waiting ranks give up; 600 until it is known.
double rank_timeout() noexcept;
void set_rank_timeout(double seconds) noexcept;

// --hang-timeout: seconds without progress, beyond the longest silence so far, after which the run counts as hung; 60
// until it is known.
double hang_timeout() noexcept;
void set_hang_timeout(double seconds) noexcept;

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
