#include "job/hangs/pulse_exchange.h"

#include <fmt/core.h>
#include <mpi.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <stop_token>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/status/heartbeat.h"
#include "base/status/position.h"
#include "base/threads.h"
#include "comm/transport/mpi_check.h"
#include "job/exchange.h"
#include "job/hangs/pulse_spread.h"
#include "job/hangs/thread_states.h"
#include "job/launch/siblings.h"
#include "job/report.h"

namespace ddp {
namespace {

constexpr double kSecondsBetweenPulses = 0.25;
constexpr auto kPollEvery = std::chrono::milliseconds(50);
constexpr auto kPollAtTheEnd = std::chrono::milliseconds(1);
// Without a pulse for so long, a rank of this host may be stopped.
constexpr double kMissingAfter = 1;
constexpr int kTag = 0;

struct RankPlace {
  std::string host;
  pid_t process = 0;
  std::uint64_t position = 0;  // position_address()
};

std::string text_of(const RankPlace& place) {
  return fmt::format("{} {} {}", place.process, place.position, place.host);
}

RankPlace place_of(const std::string& text) {
  std::istringstream words(text);
  RankPlace place;
  words >> place.process >> place.position >> std::ws;
  std::getline(words, place.host);
  return place;
}

// State that the watchdog reads while the exchange runs.
struct Known {
  std::mutex mutex;
  std::optional<PulseBoard> board;
  std::vector<RankPlace> places;
};
Known& known() {
  static auto* const instance = new Known;
  return *instance;
}

// What this process can tell about itself, or about another one of its host that is stopped.
Report report_of(pid_t process, const std::string& doing, bool file_call) {
  const ThreadStates states = thread_states(process);
  Report report;
  report.file_call = file_call || states.file_call ? 1 : 0;
  copy_text(report.doing, doing);
  copy_text(report.threads, states.text);
  return report;
}

bool is_stopped_state(char state) { return state == 'T' || state == 't'; }

// What is being sent to or received from one rank (job/hangs/pulse_spread.h).
struct Link {
  int rank = 0;
  std::vector<std::byte> bytes;
  MPI_Request request = MPI_REQUEST_NULL;
  bool last = false;  // the last message has been handed to MPI, or received
};

}  // namespace

class PulseExchange::Impl {
 public:
  explicit Impl(const MpiSession& session) : rank_(session.rank()), main_thread_(std::this_thread::get_id()) {
    const int size = session.size();
    const std::vector<std::string> texts =
        all_gather_text(session, text_of({host_name(), getpid(), position_address()}), rank_timeout(),
                        "the exchange of the ranks' processes");
    {
      const RankWait wait("MPI_Comm_dup");
      DDP_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
    }
    DDP_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    // The ranks end together if one of them cannot start its thread, so no thread sends anything before.
    try {
      together(session, [this] {
        thread_ = start_thread("the exchange of pulses", [this](const std::stop_token& stop) {
          agreed_.wait(false);
          run(stop);
        });
      });
    } catch (...) {
      thread_.request_stop();
      begin();
      throw;
    }
    {
      const std::scoped_lock lock(known().mutex);
      known().places.clear();
      for (const std::string& text : texts) known().places.push_back(place_of(text));
      known().board.emplace(session.rank(), size);
      spread_.emplace(*known().board, session.rank(), size);
    }
    for (const int rank : spread_->targets()) out_.push_back({.rank = rank, .bytes = {}});
    for (const int rank : spread_->sources()) in_.push_back({.rank = rank, .bytes = {}});
    begin();
  }

  ~Impl() {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
    const std::scoped_lock lock(known().mutex);
    known().board.reset();
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void close(const std::string& why) {
    leaving_ = true;
    {
      const RankWait wait(why.empty() ? "the end of the program" : std::string(kLeavingAfter) + why);
      thread_.join();
    }
    if (failure_) std::rethrow_exception(failure_);
    DDP_MPI(MPI_Comm_free(&comm_));
  }

 private:
  void begin() {
    agreed_ = true;
    agreed_.notify_one();
  }

  void run(const std::stop_token& stop) {
    if (stop.stop_requested()) return;
    static_cast<void>(prctl(PR_SET_NAME, "pulses"));
    try {
      double next = 0;
      while (!stop.stop_requested()) {
        const bool leaving = leaving_;
        if (now() >= next || (leaving && !told_)) {
          next = now() + kSecondsBetweenPulses;
          told_ = leaving;
          note_own(leaving);
          spread();
        }
        if (poll() && leaving) spread();
        if (leaving && done()) return;
        std::this_thread::sleep_for(leaving ? kPollAtTheEnd : kPollEvery);
      }
    } catch (...) {
      // The main thread learns of the error at the end; until then the board goes stale, and the watchdog acts.
      failure_ = std::current_exception();
    }
  }

  void note_own(bool leaving) {
    const Doing doing = what_is_done(main_thread_);
    Pulse pulse;
    pulse.ticks = ++ticks_;
    pulse.beats = heartbeats();
    pulse.waits = doing.waits_for_ranks ? 1 : 0;
    pulse.peer = doing.rank;
    pulse.leaving = leaving ? 1 : 0;
    pulse.long_work = doing.long_work && !doing.waits_for_ranks ? 1 : 0;
    const Position here = position();
    pulse.step = here.step;
    pulse.phase = static_cast<std::int32_t>(here.phase);
    pulse.bucket = here.bucket;
    const std::scoped_lock lock(known().mutex);
    known().board->note_own(pulse, waiting_clock());
    spread_->note_own(*known().board, leaving, waiting_clock());
    if (PulseSpread::reports(*known().board, waiting_clock())) note_reports(doing, *known().board);
  }

  void note_reports(const Doing& doing, PulseBoard& board) const {
    Report own = report_of(getpid(), doing.text, doing.file_call);
    own.ticks = ticks_;
    board.note_report(rank_, own);
    for (std::size_t r = 0; r < known().places.size(); ++r) {
      const int rank = static_cast<int>(r);
      const RankPlace& place = known().places[r];
      if (board.seconds_silent(rank, waiting_clock()) < kMissingAfter || place.host != host_name()) continue;
      if (!is_stopped_state(process_state(place.process))) continue;
      Report other = report_of(place.process, "", false);
      // Newer than what it has reported itself.
      other.ticks = board.table()[r].ticks + 1;
      other.doing = board.reports()[r].doing;
      other.stopped = 1;
      board.note_report(rank, other);
    }
  }

  // Sends news to every rank that has received the previous ones; marked as the last if all ranks are leaving.
  void spread() {
    for (std::size_t i = 0; i < out_.size(); ++i) {
      Link& link = out_[i];
      if (link.request != MPI_REQUEST_NULL || link.last) continue;
      {
        const std::scoped_lock lock(known().mutex);
        const std::span<const std::byte> message = spread_->message(*known().board, i, waiting_clock());
        link.bytes.assign(message.begin(), message.end());
      }
      link.last = PulseSpread::is_last(link.bytes);
      const auto bytes = static_cast<int>(link.bytes.size());
      DDP_MPI(MPI_Isend(link.bytes.data(), bytes, MPI_BYTE, link.rank, kTag, comm_, &link.request));
    }
  }

  // Begins to receive what has come from a rank, whose length only it knows.
  void receive(Link& link) {
    if (link.request != MPI_REQUEST_NULL || link.last) return;
    int comes = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status{};
    DDP_MPI(MPI_Improbe(link.rank, kTag, comm_, &comes, &message, &status));
    if (comes == 0) return;
    int count = 0;
    DDP_MPI(MPI_Get_count(&status, MPI_BYTE, &count));
    link.bytes.resize(static_cast<std::size_t>(count));
    DDP_MPI(MPI_Imrecv(link.bytes.data(), count, MPI_BYTE, &message, &link.request));
  }

  // Returns whether any message was sent or received.
  bool poll() {
    bool moved = false;
    for (Link& link : out_) moved = completed(link) || moved;
    for (std::size_t i = 0; i < in_.size(); ++i) {
      Link& link = in_[i];
      receive(link);
      if (!completed(link)) continue;
      moved = true;
      {
        const std::scoped_lock lock(known().mutex);
        PulseBoard& board = *known().board;
        const double before = board.progress_elsewhere();
        spread_->take(board, i, link.bytes, waiting_clock());
        if (board.progress_elsewhere() > before) note_progress_elsewhere();
      }
      link.last = PulseSpread::is_last(link.bytes);
    }
    return moved;
  }

  bool done() const {
    const auto ended = [](const Link& link) { return link.last && link.request == MPI_REQUEST_NULL; };
    return std::all_of(out_.begin(), out_.end(), ended) && std::all_of(in_.begin(), in_.end(), ended);
  }

  static bool completed(Link& link) {
    if (link.request == MPI_REQUEST_NULL) return false;
    int done = 0;
    DDP_MPI(MPI_Test(&link.request, &done, MPI_STATUS_IGNORE));
    return done != 0;
  }

  int rank_;
  std::thread::id main_thread_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::optional<PulseSpread> spread_;  // under the mutex of known()
  std::vector<Link> out_;
  std::vector<Link> in_;
  std::uint64_t ticks_ = 0;
  std::atomic<bool> agreed_{false};  // all ranks have their threads
  std::atomic<bool> leaving_{false};
  bool told_ = false;  // the other ranks have been told that this rank is leaving
  std::exception_ptr failure_;
  std::jthread thread_;
};

PulseExchange::PulseExchange(const MpiSession& session) {
  if (session.size() > 1) impl_ = std::make_unique<Impl>(session);
}
PulseExchange::~PulseExchange() = default;

void PulseExchange::close(const std::string& why) {
  if (impl_) impl_->close(why);
}

bool pulses_go_on() {
  const std::scoped_lock lock(known().mutex);
  return known().board.has_value();
}

std::optional<Finding> find_culprits(const Patience& patience) {
  const std::scoped_lock lock(known().mutex);
  return known().board ? known().board->find_culprits(patience, waiting_clock()) : std::nullopt;
}

bool long_work_elsewhere(double silent_seconds) {
  const std::scoped_lock lock(known().mutex);
  return known().board && known().board->long_work(silent_seconds, waiting_clock());
}

namespace {

// Reads the position of a silent rank on this host, which is more recent than its last pulse.
void take_position(RankState& state, std::uint64_t address) {
  const std::optional<Position> position = position_in(state.process, address);
  if (!position) return;
  state.pulse.step = position->step;
  state.pulse.phase = static_cast<std::int32_t>(position->phase);
  state.pulse.bucket = position->bucket;
}

}  // namespace

std::vector<RankState> rank_states(double silent_seconds) {
  const std::scoped_lock lock(known().mutex);
  std::vector<RankState> states;
  if (!known().board) return states;
  const PulseBoard& board = *known().board;
  for (std::size_t r = 0; r < known().places.size(); ++r) {
    RankState state;
    state.rank = static_cast<int>(r);
    state.host = known().places[r].host;
    state.process = known().places[r].process;
    state.pulse = board.table()[r];
    state.report = board.reports()[r];
    state.seconds_stuck = board.seconds_stuck(state.rank, waiting_clock());
    state.seconds_silent = board.seconds_silent(state.rank, waiting_clock());
    state.silent = state.seconds_silent >= silent_seconds;
    if (state.host == host_name()) {
      const char status = process_state(state.process);
      state.gone = status == '\0' || status == 'Z';
      state.answers = !state.gone && !is_stopped_state(status);
      if (is_stopped_state(status)) state.report.stopped = 1;
      if (state.silent) take_position(state, known().places[r].position);
    }
    states.push_back(std::move(state));
  }
  return states;
}

std::string name_of_rank(int rank) {
  const std::scoped_lock lock(known().mutex);
  const RankPlace& place = known().places.at(static_cast<std::size_t>(rank));
  return fmt::format("rank {} on host {} (process {})", rank, place.host, place.process);
}

}  // namespace ddp
