#include "base/status/heartbeat.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/clock.h"

namespace ddp {
namespace {

std::atomic<std::uint64_t> beats{0};
std::atomic<double> timeout{600};
std::atomic<double> silence_of_hang{60};
constexpr double kNever = -1e18;
std::atomic<double> kept_clock{kNever};
std::atomic<double> elsewhere{kNever};

struct Registry {
  std::mutex mutex;
  std::list<Activity::Entry> entries;
};
// Never destroyed: helper threads may outlive main.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

}  // namespace

void heartbeat() noexcept { beats.fetch_add(1, std::memory_order_relaxed); }
std::uint64_t heartbeats() noexcept { return beats.load(std::memory_order_relaxed); }

Activity::Activity(std::string text, Kind kind, int rank) {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  place_ = all.entries.insert(all.entries.end(), {std::this_thread::get_id(), std::move(text), kind, rank});
}

Activity::~Activity() {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  all.entries.erase(place_);
}

Doing what_is_done(std::thread::id main_thread) {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  const auto of_main = [&](const Activity::Entry& entry) { return entry.thread == main_thread; };
  const auto innermost = std::find_if(all.entries.rbegin(), all.entries.rend(), of_main);
  Doing doing;
  if (innermost != all.entries.rend()) {
    doing.waits_for_ranks = innermost->kind == Activity::Kind::rank_wait;
    doing.file_call = innermost->kind == Activity::Kind::file_call;
    doing.rank = innermost->rank;
    doing.text = innermost->text;
  }
  doing.long_work = std::any_of(all.entries.begin(), all.entries.end(), [&](const Activity::Entry& entry) {
    return of_main(entry) && entry.kind == Activity::Kind::long_work;
  });
  // A helper thread is more specific about what the main thread is waiting for: the file that a loader reads, the rank
  // that the reducer waits for.
  const auto helper = std::find_if(all.entries.rbegin(), all.entries.rend(), [&](const Activity::Entry& entry) {
    return !of_main(entry) && (entry.kind == Activity::Kind::rank_wait) == doing.waits_for_ranks;
  });
  if (helper == all.entries.rend()) return doing;
  if (doing.waits_for_ranks && doing.rank != Activity::kNoRank) return doing;
  doing.file_call = helper->kind == Activity::Kind::file_call;
  doing.rank = helper->rank;
  doing.text = helper->text;
  return doing;
}

double rank_timeout() noexcept { return timeout; }
void set_rank_timeout(double seconds) noexcept { timeout = seconds; }

double hang_timeout() noexcept { return silence_of_hang; }
void set_hang_timeout(double seconds) noexcept { silence_of_hang = seconds; }

double waiting_clock() noexcept {
  const double kept = kept_clock.load(std::memory_order_relaxed);
  return kept == kNever ? now() : kept;
}
void set_waiting_clock(double seconds) noexcept { kept_clock.store(seconds, std::memory_order_relaxed); }
void drop_waiting_clock() noexcept { kept_clock.store(kNever, std::memory_order_relaxed); }

double progress_elsewhere() noexcept { return elsewhere.load(std::memory_order_relaxed); }
void note_progress_elsewhere() noexcept { elsewhere.store(waiting_clock(), std::memory_order_relaxed); }

}  // namespace ddp
