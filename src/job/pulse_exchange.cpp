#include "job/pulse_exchange.h"

#include <fmt/core.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <set>
#include <stop_token>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/heartbeat.h"
#include "base/host.h"
#include "comm/mpi_check.h"
#include "job/exchange.h"
#include "job/siblings.h"

namespace ddp {
namespace {

constexpr double kSecondsBetweenPulses = 0.25;
constexpr auto kPollEvery = std::chrono::milliseconds(50);
constexpr auto kPollAtTheEnd = std::chrono::milliseconds(1);
// With up to this many ranks, each sends to all others.
constexpr int kFewRanks = 16;
constexpr int kTag = 0;

struct RankPlace {
  std::string host;
  pid_t process = 0;
};

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

// A table being sent to or received from one rank.
struct Link {
  int rank = 0;
  std::vector<Pulse> table;
  MPI_Request request = MPI_REQUEST_NULL;
  bool last = false;  // the last table has been handed to MPI, or received
};

}  // namespace

class PulseExchange::Impl {
 public:
  explicit Impl(const MpiSession& session) : main_thread_(std::this_thread::get_id()) {
    const int size = session.size();
    const std::vector<std::string> texts = all_gather_text(session, fmt::format("{} {}", getpid(), host_name()),
                                                           rank_timeout(), "the exchange of the ranks' processes");
    {
      const RankWait wait("MPI_Comm_dup");
      DDP_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
    }
    DDP_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    for (const int distance : distances_of(size)) {
      // One more entry than ranks: whether this is the last table.
      out_.push_back({(session.rank() + distance) % size, std::vector<Pulse>(texts.size() + 1)});
      in_.push_back({(session.rank() - distance + size) % size, std::vector<Pulse>(texts.size() + 1)});
    }
    {
      const std::scoped_lock lock(known().mutex);
      known().places.clear();
      for (const std::string& text : texts) {
        const std::size_t blank = text.find(' ');
        known().places.push_back({text.substr(blank + 1), static_cast<pid_t>(std::stol(text.substr(0, blank)))});
      }
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

  void close() {
    leaving_ = true;
    {
      const RankWait wait("the end of the program");
      thread_.join();
    }
    if (failure_) std::rethrow_exception(failure_);
    DDP_MPI(MPI_Comm_free(&comm_));
  }

 private:
  void run(const std::stop_token& stop) {
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
    const std::scoped_lock lock(known().mutex);
    known().board->note_own(pulse, waiting_clock());
  }

  // Sends the table to every rank that has received the previous one; marked as the last one if all ranks are leaving.
  void spread() {
    for (Link& link : out_) {
      if (link.request != MPI_REQUEST_NULL || link.last) continue;
      {
        const std::scoped_lock lock(known().mutex);
        std::copy(known().board->table().begin(), known().board->table().end(), link.table.begin());
        link.last = known().board->all_leave();
      }
      link.table.back() = {};
      link.table.back().leaving = link.last ? 1 : 0;
      DDP_MPI(MPI_Isend(link.table.data(), bytes_of(link), MPI_BYTE, link.rank, kTag, comm_, &link.request));
    }
  }

  void receive(Link& link) {
    DDP_MPI(MPI_Irecv(link.table.data(), bytes_of(link), MPI_BYTE, link.rank, kTag, comm_, &link.request));
  }

  // Returns whether any message was sent or received.
  bool poll() {
    bool moved = false;
    for (Link& link : out_) moved = completed(link) || moved;
    for (Link& link : in_) {
      if (!completed(link)) continue;
      moved = true;
      {
        const std::scoped_lock lock(known().mutex);
        PulseBoard& board = *known().board;
        const double before = board.progress_elsewhere();
        board.merge(std::span(link.table).first(link.table.size() - 1), waiting_clock());
        if (board.progress_elsewhere() > before) note_progress_elsewhere();
      }
      link.last = link.table.back().leaving != 0;
      if (!link.last) receive(link);
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
  static int bytes_of(const Link& link) { return static_cast<int>(link.table.size() * sizeof(Pulse)); }

  std::thread::id main_thread_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<Link> out_;
  std::vector<Link> in_;
  std::uint64_t ticks_ = 0;
  std::atomic<bool> leaving_{false};
  bool told_ = false;  // the other ranks have been told that this rank is leaving
  std::exception_ptr failure_;
  std::jthread thread_;
};

PulseExchange::PulseExchange(const MpiSession& session) {
  if (session.size() > 1) impl_ = std::make_unique<Impl>(session);
}
PulseExchange::~PulseExchange() = default;

void PulseExchange::close() {
  if (impl_) impl_->close();
}

bool pulses_go_on() {
  const std::scoped_lock lock(known().mutex);
  return known().board.has_value();
}

std::optional<Finding> find_culprits(double seconds) {
  const std::scoped_lock lock(known().mutex);
  return known().board ? known().board->find_culprits(seconds, waiting_clock()) : std::nullopt;
}

std::string name_of_rank(int rank) {
  const std::scoped_lock lock(known().mutex);
  const RankPlace& place = known().places.at(static_cast<std::size_t>(rank));
  return fmt::format("rank {} on host {} (process {})", rank, place.host, place.process);
}

RankProcess process_of_rank(int rank) {
  const std::scoped_lock lock(known().mutex);
  const RankPlace& place = known().places.at(static_cast<std::size_t>(rank));
  if (place.host != host_name()) return {};
  return {true, process_state(place.process)};
}

}  // namespace ddp
