#include "job/pulse_exchange.h"

#include <fmt/core.h>
#include <mpi.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <mutex>
#include <set>
#include <sstream>
#include <stop_token>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/heartbeat.h"
#include "base/host.h"
#include "base/position.h"
#include "comm/mpi_check.h"
#include "job/exchange.h"
#include "job/siblings.h"
#include "job/thread_states.h"

namespace ddp {
namespace {

constexpr double kSecondsBetweenPulses = 0.25;
constexpr auto kPollEvery = std::chrono::milliseconds(50);
constexpr auto kPollAtTheEnd = std::chrono::milliseconds(1);
// With up to this many ranks, each sends to all others.
constexpr int kFewRanks = 16;
// Without progress for so long, the ranks send reports too.
constexpr double kReportAfter = 1;
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

std::vector<int> distances_of(int size) {
  std::set<int> distances;
  for (int d = 1; d < size; d = size <= kFewRanks ? d + 1 : d * 2) distances.insert({d, size - d});
  return {distances.begin(), distances.end()};
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

// A table being sent to or received from one rank: the pulses of all ranks and one more, which tells whether this is the
// last table; then, if nothing progresses, their reports.
struct Link {
  Link(int other, int ranks)
      : rank(other),
        pulses(static_cast<std::size_t>(ranks) + 1),
        reports(static_cast<std::size_t>(ranks)),
        bytes(most_bytes()) {}

  int rank;
  std::vector<Pulse> pulses;
  std::vector<Report> reports;
  std::vector<std::byte> bytes;
  MPI_Request request = MPI_REQUEST_NULL;
  bool last = false;  // the last table has been handed to MPI, or received

  std::size_t pulse_bytes() const { return pulses.size() * sizeof(Pulse); }
  std::size_t most_bytes() const { return pulse_bytes() + reports.size() * sizeof(Report); }
  // To `bytes`; returns how many.
  std::size_t pack(bool with_reports) {
    std::memcpy(bytes.data(), pulses.data(), pulse_bytes());
    if (!with_reports) return pulse_bytes();
    std::memcpy(bytes.data() + pulse_bytes(), reports.data(), reports.size() * sizeof(Report));
    return most_bytes();
  }
  // From `bytes`; returns whether there are reports.
  bool unpack(std::size_t count) {
    std::memcpy(pulses.data(), bytes.data(), pulse_bytes());
    if (count < most_bytes()) return false;
    std::memcpy(reports.data(), bytes.data() + pulse_bytes(), reports.size() * sizeof(Report));
    return true;
  }
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
    for (const int distance : distances_of(size)) {
      out_.emplace_back((session.rank() + distance) % size, size);
      in_.emplace_back((session.rank() - distance + size) % size, size);
    }
    {
      const std::scoped_lock lock(known().mutex);
      known().places.clear();
      for (const std::string& text : texts) known().places.push_back(place_of(text));
      known().board.emplace(session.rank(), size);
    }
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
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
  void run(const std::stop_token& stop) {
    static_cast<void>(prctl(PR_SET_NAME, "pulses"));
    try {
      double next = 0;
      for (Link& link : in_) receive(link);
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
    reports_ = known().board->seconds_still(waiting_clock()) > kReportAfter;
    if (reports_) note_reports(doing, *known().board);
  }

  void note_reports(const Doing& doing, PulseBoard& board) const {
    Report own = report_of(getpid(), doing.text, doing.file_call);
    own.ticks = ticks_;
    board.note_report(rank_, own);
    for (std::size_t r = 0; r < known().places.size(); ++r) {
      const int rank = static_cast<int>(r);
      const RankPlace& place = known().places[r];
      if (board.seconds_silent(rank, waiting_clock()) < kReportAfter || place.host != host_name()) continue;
      if (!is_stopped_state(process_state(place.process))) continue;
      Report other = report_of(place.process, "", false);
      // Newer than what it has reported itself.
      other.ticks = board.table()[r].ticks + 1;
      other.doing = board.reports()[r].doing;
      other.stopped = 1;
      board.note_report(rank, other);
    }
  }

  // Sends the table to every rank that has received the previous one; marked as the last one if all ranks are leaving.
  void spread() {
    for (Link& link : out_) {
      if (link.request != MPI_REQUEST_NULL || link.last) continue;
      {
        const std::scoped_lock lock(known().mutex);
        const PulseBoard& board = *known().board;
        std::copy(board.table().begin(), board.table().end(), link.pulses.begin());
        std::copy(board.reports().begin(), board.reports().end(), link.reports.begin());
        link.last = board.all_leave();
      }
      link.pulses.back() = {};
      link.pulses.back().leaving = link.last ? 1 : 0;
      const auto bytes = static_cast<int>(link.pack(reports_));
      DDP_MPI(MPI_Isend(link.bytes.data(), bytes, MPI_BYTE, link.rank, kTag, comm_, &link.request));
    }
  }

  void receive(Link& link) {
    const auto bytes = static_cast<int>(link.most_bytes());
    DDP_MPI(MPI_Irecv(link.bytes.data(), bytes, MPI_BYTE, link.rank, kTag, comm_, &link.request));
  }

  // Returns whether any message was sent or received.
  bool poll() {
    bool moved = false;
    for (Link& link : out_) moved = completed(link) || moved;
    for (Link& link : in_) {
      int count = 0;
      if (!completed(link, &count)) continue;
      moved = true;
      const bool with_reports = link.unpack(static_cast<std::size_t>(count));
      {
        const std::scoped_lock lock(known().mutex);
        PulseBoard& board = *known().board;
        const double before = board.progress_elsewhere();
        board.merge(std::span(link.pulses).first(link.reports.size()), waiting_clock());
        if (with_reports) board.merge_reports(link.reports);
        if (board.progress_elsewhere() > before) note_progress_elsewhere();
      }
      link.last = link.pulses.back().leaving != 0;
      if (!link.last) receive(link);
    }
    return moved;
  }

  bool done() const {
    const auto ended = [](const Link& link) { return link.last && link.request == MPI_REQUEST_NULL; };
    return std::all_of(out_.begin(), out_.end(), ended) && std::all_of(in_.begin(), in_.end(), ended);
  }

  static bool completed(Link& link, int* bytes = nullptr) {
    if (link.request == MPI_REQUEST_NULL) return false;
    int done = 0;
    MPI_Status status{};
    DDP_MPI(MPI_Test(&link.request, &done, &status));
    if (done != 0 && bytes != nullptr) DDP_MPI(MPI_Get_count(&status, MPI_BYTE, bytes));
    return done != 0;
  }

  int rank_;
  std::thread::id main_thread_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<Link> out_;
  std::vector<Link> in_;
  std::uint64_t ticks_ = 0;
  bool reports_ = false;  // no rank has made progress for a while
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

// Of a rank on this host that is silent: more recent than its last pulse.
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
