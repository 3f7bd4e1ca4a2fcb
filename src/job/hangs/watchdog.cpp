#include "job/hangs/watchdog.h"

#include <fmt/core.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/log.h"
#include "base/status/heartbeat.h"
#include "base/status/last_acts.h"
#include "base/status/position.h"
#include "base/text/text.h"
#include "base/threads.h"
#include "job/hangs/hang_table.h"
#include "job/hangs/pulse_exchange.h"
#include "job/hangs/thread_states.h"
#include "job/launch/daemon.h"
#include "job/launch/launcher.h"
#include "job/launch/siblings.h"
#include "job/mpi_session.h"
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

// "60 s", "2.5 s": to a tenth.
std::string seconds_text(double seconds) { return fmt::format("{:g} s", std::round(10 * seconds) / 10); }

// "rank 1 on host a (process 4711) is stopped by a signal (step 7, backward)", or what else is known of the suspects.
std::string suspects_text(const std::vector<RankState>& states, const Doing& doing) {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> texts;
  std::size_t count = 0;
  for (const RankState& state : states) {
    if (state.suspect.empty()) continue;
    if (++count <= kShown) texts.push_back(suspect_text(state));
  }
  if (count > kShown) texts.push_back(fmt::format("and {} more ranks", count - kShown));
  if (!texts.empty()) return join(texts);
  return fmt::format("waiting for {} in {}; all ranks are alive and wait for one another, so a message was lost",
                     doing.rank == Activity::kNoRank ? "other ranks" : name_of_rank(doing.rank), doing.text);
}

// Before and after the exchange of pulses: this rank, and those that the same launcher has started on this host.
std::vector<RankState> states_here(const std::string& text, bool file_call, double silent) {
  std::vector<RankState> states;
  for (const Sibling& each : siblings()) {
    const bool own = each.process == getpid();
    const ThreadStates threads = thread_states(each.process);
    const char process = process_state(each.process);
    RankState state;
    state.rank = own ? std::max(log_rank(), each.rank) : each.rank;
    state.host = host_name();
    state.process = each.process;
    state.seconds_stuck = silent;
    state.report.stopped = process == 'T' || process == 't' ? 1 : 0;
    copy_text(state.report.threads, threads.text);
    if (own) {
      const Position here = position();
      state.pulse.step = here.step;
      state.pulse.phase = static_cast<std::int32_t>(here.phase);
      state.pulse.bucket = here.bucket;
      state.report.file_call = file_call || threads.file_call ? 1 : 0;
      copy_text(state.report.doing, text);
    }
    if (state.report.stopped != 0) state.suspect = "stopped by a signal";
    states.push_back(std::move(state));
  }
  return states;
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
    look_at_daemon();
    const double time = now();
    clock_ += std::clamp(time - last_look_, 0.0, kLongestLook);
    last_look_ = time;
    set_waiting_clock(clock_);
    note_progress();
    doing_ = what_is_done(main_thread_);
    long_work_ = doing_.long_work || long_work_elsewhere(kNotice);
    look_at_requests();
    const Patience limit = patience();
    const Trouble notice = trouble({kNotice, kNotice});
    const double ends_after = notice.silent ? limit.silent : limit.stuck;
    if (notice.text.empty()) noticed_ = false;
    if (!notice.text.empty() && !noticed_ && kNotice < ends_after) {
      noticed_ = true;
      log_warning("{}; the job ends after {} ({})", notice.text, seconds_text(ends_after), option_of(ends_after));
    }
    if (const Trouble reason = trouble(limit); !reason.text.empty()) {
      show_table(limit);
      log_error("{}; raise {} if it was only slow", reason.text, option_of(reason.silent ? limit.silent : limit.stuck));
      if (cut_off()) end_cut_off_daemon();
      end_all_ranks(static_cast<int>(ExitCode::rank_lost));
    }
  }

 private:
  // Rank 0, on the host of mpirun, is on another host and not heard any more.
  static bool cut_off() {
    const std::vector<RankState> states = rank_states(kShortestSilence);
    return !states.empty() && states[0].silent && states[0].host != host_name();
  }

  void note_progress() {
    const bool moves = heartbeats() != beats_ || mpi_stage != stage_;
    if (moves) {
      beats_ = heartbeats();
      stage_ = mpi_stage;
      last_beat_ = clock_;
    }
    const double progress = std::max(last_beat_, progress_elsewhere());
    // Work that is known to take long says nothing about how long a step may be silent.
    if (progress > last_progress_ && !long_work_) {
      longest_silence_ = std::max(longest_silence_, progress - last_progress_);
    }
    last_progress_ = std::max(last_progress_, progress);
  }

  // --timeout bounds everything. Before it, a run has hung that is silent for --hang-timeout longer than ever before,
  // except in work that is known to take long.
  Patience patience() const {
    const double most = std::max(rank_timeout(), 0.1);
    const double hang = std::min(most, std::max(hang_timeout(), 0.1));
    return {hang, long_work_ ? most : std::min(most, hang + longest_silence_)};
  }
  static const char* option_of(double limit) { return limit < rank_timeout() ? "--hang-timeout" : "--timeout"; }

  // What every rank is doing, on standard error and in the run folder.
  void show_table(const Patience& limit) const {
    std::vector<RankState> states = rank_states(std::max(limit.silent, kShortestSilence));
    if (const std::optional<Finding> finding = find_culprits(longer(limit))) mark_suspects(states, *finding);
    if (states.empty()) {
      states = states_here(what_here(), doing_.file_call, clock_ - last_beat_);
      const bool stuck = stage_ == MpiStage::running && !doing_.waits_for_ranks;
      if (stuck) mark_suspects(states, {.kind = Finding::Kind::stuck, .ranks = {log_rank()}});
    }
    const std::string path = write_hang_table(hang_table(states), std::max(0, log_rank()));
    fmt::print(stderr, "{}", short_hang_table(states));
    if (!path.empty()) fmt::print(stderr, "this table is in {}\n", path);
    static_cast<void>(std::fflush(stderr));
  }

  std::string what_here() const {
    if (stage_ == MpiStage::starting) return "the start of all ranks (MPI_Init)";
    if (stage_ == MpiStage::ending) return "the end of all ranks (MPI_Finalize)";
    return doing_.text.empty() ? "setting up" : doing_.text;
  }

  // A pulse may be late.
  static Patience longer(const Patience& limit) {
    return {std::max(limit.silent, kShortestSilence), std::max(limit.stuck, kShortestSilence)};
  }
  // A rank whose launcher is gone has nobody to report to, and MPI_Init would try to reach it for 10 s.
  void look_for_launcher() {
    if (launcher_ <= 1 || getppid() == launcher_) return;
    if (orphaned_since_ < 0) orphaned_since_ = clock_;
    if (clock_ - orphaned_since_ < kOrphaned) return;
    perform_last_acts();
    _exit(static_cast<int>(ExitCode::rank_lost));
  }

  // Until the ranks exchange pulses, a rank does not notice that its host cannot be reached.
  void look_at_daemon() {
    if (launcher_ <= 1 || pulses_go_on() || clock_ < next_look_at_daemon_) return;
    next_look_at_daemon_ = clock_ + 1;
    if (!daemon_is_cut_off()) return;
    log_error("host {} has lost the connection to the host of mpirun", host_name());
    end_cut_off_daemon();
    perform_last_acts();
    _exit(static_cast<int>(ExitCode::rank_lost));
  }

  // The reason for ending the job, if this rank is to report it.
  struct Trouble {
    std::string text;
    bool silent = false;  // some rank sends no pulses
  };
  Trouble trouble(const Patience& limit) const {
    const double silent = clock_ - last_beat_;
    if (!pulses_go_on()) {
      if (stage_ == MpiStage::running && doing_.waits_for_ranks) return {without_pulses(limit.stuck, silent)};
      if (stage_ == MpiStage::running) return {silent < limit.stuck ? "" : own_text(limit.stuck)};
      return {without_pulses(limit.stuck, silent)};
    }
    const Patience later = longer(limit);
    if (const std::optional<Finding> finding = find_culprits(later)) {
      return {finding_text(*finding, later), finding->kind == Finding::Kind::silent};
    }
    // The other ranks progress, perhaps in work that does not need this one.
    const double longest = std::max(limit.stuck, rank_timeout()) + 2 * kAfterYou;
    if (doing_.waits_for_ranks || silent < longest) return {};
    return {own_text(limit.stuck)};
  }

  std::string own_text(double seconds) const {
    return fmt::format("no progress for {} on host {}{}", seconds_text(seconds), host_name(),
                       doing_.text.empty() ? "" : " while " + doing_.text);
  }

  std::string finding_text(const Finding& finding, const Patience& limit) const {
    const bool mine = finding.reporter == log_rank();
    if (!mine && !find_culprits({limit.silent + kAfterYou, limit.stuck + kAfterYou})) return "";
    std::vector<RankState> states = rank_states(limit.silent);
    if (states.empty()) return "";  // the exchange has just ended
    mark_suspects(states, finding);
    return fmt::format("no progress on any rank for {}: {}",
                       seconds_text(finding.kind == Finding::Kind::silent ? limit.silent : limit.stuck),
                       suspects_text(states, doing_));
  }

  // Before and after the exchange of pulses, and with a single rank: the information in /proc.
  std::string without_pulses(double seconds, double silent) const {
    if (silent < seconds || (silent < seconds + kAfterYou && !first_of_siblings())) return "";
    const std::string stopped = stopped_text();
    return fmt::format("waited {} on host {} for {}{}", seconds_text(seconds), host_name(), what_here(),
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
  double next_look_at_daemon_ = 0;
  double clock_;
  double last_look_;
  double last_beat_;
  std::uint64_t beats_ = 0;
  MpiStage stage_ = MpiStage::before;
  Doing doing_;
  bool long_work_ = false;
  double last_progress_ = clock_;
  double longest_silence_ = 0;
  bool noticed_ = false;
  double requested_at_ = -1;
};

}  // namespace

void enter(MpiStage stage) noexcept { mpi_stage = stage; }
MpiStage current_mpi_stage() noexcept { return mpi_stage; }

// The environment is read here, on the calling thread: MPI_Init changes it, and getenv beside setenv is a data race.
Watchdog::Watchdog()
    : thread_(start_thread("the watchdog", [main_thread = std::this_thread::get_id(),
                                            launcher = has_launcher(process_environment()) ? getppid() : 0](
                                               const std::stop_token& stop) {
        static_cast<void>(prctl(PR_SET_NAME, "watchdog"));
        Guard guard(main_thread, launcher);
        std::mutex mutex;
        std::condition_variable_any ended;
        std::unique_lock lock(mutex);
        while (!ended.wait_for(lock, stop, kLookEvery, [&] { return stop.stop_requested(); })) guard.look();
      })) {}

Watchdog::~Watchdog() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  drop_waiting_clock();
}

}  // namespace ddp
