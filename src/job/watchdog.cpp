#include "job/watchdog.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/heartbeat.h"
#include "base/host.h"
#include "base/last_acts.h"
#include "base/log.h"
#include "base/text.h"
#include "job/launcher.h"
#include "job/mpi_session.h"
#include "job/pulse_exchange.h"
#include "job/siblings.h"
#include "job/signals.h"

namespace ddp {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(100);
// A longer interval between two iterations means that the process was suspended.
constexpr double kLongestLook = 1;
// Silence after which a notice is logged.
constexpr double kNotice = 10;
// The time that the other ranks leave to the reporting rank.
constexpr double kAfterYou = 2;
// A pulse may be delayed by this much without significance.
constexpr double kShortestSilence = 3;
// How long a rank outlives its launcher; while MPI is active, MPI itself notices within a second.
constexpr double kOrphaned = 1.5;
// After mpirun's SIGTERM, how long a rank waits for the others to answer; SIGKILL follows a second after SIGTERM.
constexpr double kBeforeKill = 0.4;
// After a request to stop: the time the main thread has for an orderly exit, and the time a run may hang.
constexpr double kOrderly = 2;
constexpr double kHangsAfterStop = 10;

std::atomic<MpiStage> mpi_stage{MpiStage::before};

std::string seconds_text(double seconds) { return fmt::format("{:g} s", seconds); }

// What is known about the ranks to blame, beyond their silence.
std::string silent_text(const std::vector<int>& ranks) {
  std::vector<std::string> names;
  bool stopped = true;
  bool gone = true;
  for (const int rank : ranks) {
    names.push_back(name_of_rank(rank));
    const RankProcess process = process_of_rank(rank);
    stopped = stopped && process.known && (process.state == 'T' || process.state == 't');
    gone = gone && process.known && (process.state == '\0' || process.state == 'Z');
  }
  const char* const verb = ranks.size() == 1 ? "is" : "are";
  if (stopped) return fmt::format("{} {} stopped (SIGSTOP, SIGTSTP or a debugger)", join(names), verb);
  if (gone) return fmt::format("{} {} gone", join(names), verb);
  return fmt::format("{} {} silent: the process is stopped, or the host cannot be reached", join(names), verb);
}

// On any rank: a line that is not an error.
void say(const std::string& text) { log_line(log_rank() == 0 ? LogLevel::info : LogLevel::warning, text); }

class Guard {
 public:
  Guard(std::thread::id main_thread, pid_t launcher)
      : main_thread_(main_thread), launcher_(launcher), clock_(now()), last_look_(clock_), last_beat_(clock_) {
    set_waiting_clock(clock_);
  }

  void look() {
    look_for_launcher();
    const double time = now();
    clock_ += std::clamp(time - last_look_, 0.0, kLongestLook);
    last_look_ = time;
    set_waiting_clock(clock_);
    if (heartbeats() != beats_ || mpi_stage != stage_) {
      beats_ = heartbeats();
      stage_ = mpi_stage;
      last_beat_ = clock_;
    }
    doing_ = what_is_done(main_thread_);
    look_at_requests();
    const double limit = std::max(rank_timeout(), 0.1);
    const std::string notice = trouble(kNotice);
    if (notice.empty()) noticed_ = false;
    if (!notice.empty() && !noticed_ && kNotice < limit) {
      noticed_ = true;
      log_warning("{}; the job ends after {} (--timeout)", notice, seconds_text(limit));
    }
    if (const std::string reason = trouble(limit); !reason.empty()) {
      log_error("{}; raise --timeout if it was only slow", reason);
      end_all_ranks(static_cast<int>(ExitCode::rank_lost));
    }
  }

 private:
  // A rank whose launcher is gone has nobody to report to, and MPI_Init would try to reach it for 10 s.
  void look_for_launcher() {
    if (launcher_ <= 1 || getppid() == launcher_) return;
    if (orphaned_since_ < 0) orphaned_since_ = clock_;
    if (clock_ - orphaned_since_ < kOrphaned) return;
    perform_last_acts();
    _exit(static_cast<int>(ExitCode::rank_lost));
  }

  // The reason for ending the job, if this rank is to report it; otherwise "".
  std::string trouble(double seconds) const {
    const double silent = clock_ - last_beat_;
    if (stage_ == MpiStage::running && !doing_.waits_for_ranks && silent >= seconds) {
      // If several hang in the same way, for example on one file, the lowest rank reports.
      const std::optional<Finding> all = find_culprits(std::max(seconds - 1, 0.1));
      if (all && all->reporter != log_rank() && silent < seconds + kAfterYou) return "";
      return fmt::format("no progress for {} on host {}{}", seconds_text(seconds), host_name(),
                         doing_.text.empty() ? "" : " while " + doing_.text);
    }
    if (!pulses_go_on()) {
      return stage_ == MpiStage::running && !doing_.waits_for_ranks ? "" : without_pulses(seconds, silent);
    }
    const double longest = std::max(seconds, kShortestSilence);
    const std::optional<Finding> finding = find_culprits(longest);
    if (!finding || (!doing_.waits_for_ranks && finding->kind != Finding::Kind::silent)) return "";
    return finding_text(*finding, longest);
  }

  std::string finding_text(const Finding& finding, double seconds) const {
    const bool mine = finding.reporter == log_rank();
    if (!mine && !find_culprits(seconds + kAfterYou)) return "";
    switch (finding.kind) {
      case Finding::Kind::silent:
        return fmt::format("no progress on any rank for {}: {}", seconds_text(seconds), silent_text(finding.ranks));
      case Finding::Kind::stuck:
        return fmt::format("no progress on any rank for {}: waiting for {}, which is not waiting for another rank",
                           seconds_text(seconds), name_of_rank(finding.ranks.front()));
      case Finding::Kind::cycle:
        break;
    }
    return fmt::format(
        "no progress on any rank for {}: waiting for {} in {}; all ranks are alive and wait for one another, "
        "so a message was lost",
        seconds_text(seconds), doing_.rank == Activity::kNoRank ? "other ranks" : name_of_rank(doing_.rank),
        doing_.text);
  }

  // Before and after the exchange of pulses, and with a single rank: the information in /proc.
  std::string without_pulses(double seconds, double silent) const {
    if (silent < seconds || (silent < seconds + kAfterYou && !first_of_siblings())) return "";
    std::string what = doing_.text.empty() ? "setting up" : doing_.text;
    if (stage_ == MpiStage::starting) what = "the start of all ranks (MPI_Init)";
    if (stage_ == MpiStage::ending) what = "the end of all ranks (MPI_Finalize)";
    const std::string stopped = stopped_text();
    return fmt::format("waited {} on host {} for {}{}", seconds_text(seconds), host_name(), what,
                       stopped.empty() ? "" : ": " + stopped);
  }

  void look_at_requests() {
    const Signals* const signals = Signals::current();
    if (signals == nullptr || !signals->stop_requested()) return;
    if (requested_at_ < 0) requested_at_ = clock_;
    const double since = clock_ - requested_at_;
    leave_before_the_kill(*signals, since);
    switch (signals->stop_mode()) {
      case StopMode::at_once: {
        const bool running = stage_ == MpiStage::running;
        if (stage_ == MpiStage::ending || stage_ == MpiStage::after) return;
        const bool first = running ? log_rank() == 0 : first_of_siblings();
        if (!signals->stops_at_once() || since < (running ? kOrderly : 0) + (first ? 0 : 1)) return;
        say(fmt::format("stopped by {}; there was nothing to save", signals->stop_reason()));
        end_all_ranks(static_cast<int>(ExitCode::stopped));
      }
      case StopMode::by_step: {
        const double silent = clock_ - std::max({last_beat_, progress_elsewhere(), requested_at_});
        if (silent < kHangsAfterStop + (log_rank() == 0 ? 0 : 1)) return;
        const std::string what = doing_.text.empty() ? "" : " in " + doing_.text;
        say(fmt::format(
            "stopped by {} without a new checkpoint: no progress for {}{}; --resume auto continues from the "
            "newest one",
            signals->stop_reason(), seconds_text(kHangsAfterStop), what));
        end_all_ranks(static_cast<int>(ExitCode::stopped));
      }
      case StopMode::finished:
        return;
    }
  }

  // mpirun terminates the job, for example because another rank died, and kills this rank within a second. If it only
  // waits for other ranks, nothing is being written, so it releases what it holds, such as the run folder's lock.
  void leave_before_the_kill(const Signals& signals, double since) const {
    if (!signals.ended_by_launcher() || since < kBeforeKill || stage_ != MpiStage::running) return;
    if (!doing_.waits_for_ranks || last_beat_ > requested_at_) return;
    perform_last_acts();
    _exit(static_cast<int>(ExitCode::stopped));
  }

  std::thread::id main_thread_;
  // 0 without an MPI launcher: a shell that started the program may end before it.
  pid_t launcher_;
  double orphaned_since_ = -1;
  double clock_;
  double last_look_;
  double last_beat_;
  std::uint64_t beats_ = 0;
  MpiStage stage_ = MpiStage::before;
  Doing doing_;
  bool noticed_ = false;
  double requested_at_ = -1;
};

}  // namespace

void enter(MpiStage stage) noexcept { mpi_stage = stage; }
MpiStage current_mpi_stage() noexcept { return mpi_stage; }

// The environment is read here, on the calling thread: MPI_Init changes it, and getenv beside setenv is a data race.
Watchdog::Watchdog()
    : thread_([main_thread = std::this_thread::get_id(),
               launcher = has_launcher(process_environment()) ? getppid() : 0](const std::stop_token& stop) {
        Guard guard(main_thread, launcher);
        std::mutex mutex;
        std::condition_variable_any ended;
        std::unique_lock lock(mutex);
        while (!ended.wait_for(lock, stop, kLookEvery, [&] { return stop.stop_requested(); })) guard.look();
      }) {}

Watchdog::~Watchdog() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  drop_waiting_clock();
}

}  // namespace ddp
