#include "job/signals.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <span>

#include "base/clock.h"
#include "base/error.h"
#include "base/threads.h"

namespace ddp {
namespace {

// A signal handler takes no user argument, so it finds its object here. Only lock-free atomics are safe in a handler.
std::atomic<Signals*> active{nullptr};
static_assert(std::atomic<Signals*>::is_always_lock_free && std::atomic<double>::is_always_lock_free &&
              std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

// Blocks or unblocks signals for the calling thread; returns 0 or an errno value.
int change_mask(int how, std::span<const int> numbers) noexcept {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : numbers) sigaddset(&set, number);
  return pthread_sigmask(how, &set, nullptr);
}

// Seconds after SIGTERM within which mpirun has killed a rank.
constexpr double kMpirunKills = 3;

constexpr std::array kTaken = {SIGUSR1, SIGTERM, SIGINT, SIGHUP};

}  // namespace

SignalThread::SignalThread() {
  const int error = change_mask(SIG_BLOCK, kTaken);
  check(error == 0, ExitCode::internal, "internal error: pthread_sigmask: {}", errno_text(error));
  thread_ = start_thread("signals", [](const std::stop_token& stop) {
    (void)change_mask(SIG_UNBLOCK, kTaken);
    std::mutex mutex;
    std::condition_variable_any ended;
    std::unique_lock lock(mutex);
    ended.wait(lock, stop, [] { return false; });
  });
}

SignalThread::~SignalThread() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  // Nothing is running any more: restore the default actions.
  (void)change_mask(SIG_UNBLOCK, kTaken);
}

Signals::Signals() {
  Signals* none = nullptr;
  check(active.compare_exchange_strong(none, this), ExitCode::internal, "internal error: two Signals at once");
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    check(sigaction(kSignals[i], &action, &previous_[i]) == 0, ExitCode::internal, "internal error: sigaction: {}",
          errno_text(errno));
  }
}

Signals::~Signals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &previous_[i], nullptr);
  active = nullptr;
}

bool Signals::stops_at_once() const {
  if (!stop_requested() || stop_mode_ != StopMode::at_once) return false;
  return stop_signal_ != SIGTERM || !under_mpirun_ || now() - stopped_at_ > kMpirunKills;
}

Signals* Signals::current() { return active; }

bool Signals::ended_by_launcher() const { return under_mpirun_ && term_sender_ != 0 && term_sender_ == getppid(); }

void Signals::handle(int number, siginfo_t* info, void* /*context*/) {
  Signals* const signals = active;
  if (signals == nullptr) return;
  const bool from_terminal = info != nullptr && info->si_code == SI_KERNEL;
  signals->note(number, info == nullptr || from_terminal ? 0 : info->si_pid, from_terminal);
}

void Signals::note(int number, pid_t sender, bool from_terminal) {
  if (number == SIGTERM) term_sender_ = sender;
  if (number == SIGHUP) {
    checkpoint_wanted_ = true;
    return;
  }
  if (number == SIGINT && interrupted_.exchange(true)) _exit(130);
  if (number == SIGINT) from_terminal_ = from_terminal;
  int none = 0;
  if (stop_signal_ == 0) stopped_at_ = now();
  stop_signal_.compare_exchange_strong(none, number);
}

std::string_view Signals::stop_reason() const {
  switch (stop_signal_) {
    case SIGUSR1:
      return "SIGUSR1";
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return from_terminal_ ? "Ctrl-C" : "SIGINT";
    default:
      return "";
  }
}

}  // namespace ddp
