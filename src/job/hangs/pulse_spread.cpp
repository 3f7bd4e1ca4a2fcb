#include "job/hangs/pulse_spread.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>

#include "base/error.h"

namespace ddp {
namespace {

// With up to this many ranks, each sends to all others.
constexpr int kFewRanks = 16;
// Without progress for so long, the ranks send reports, and raise an alarm.
constexpr double kReportAfter = 1;
// A rank is missed; pulses come four times a second.
constexpr double kMissedAfter = 2;
// An alarm lasts so long after its cause, longer than it takes to reach all ranks.
constexpr double kAlarmSeconds = 5;
// Between tables to one rank during an alarm; this many ranks send them with every pulse.
constexpr int kRanksPerTable = 256;

struct Summary {
  Pulse own;
  double progress_age = 0;   // of the latest progress of any rank
  double alarm_age = 0;      // of the latest cause of an alarm
  double long_work_age = 0;  // of the latest work that is known to take long
  std::int32_t left = -1;
  std::int32_t last = 0;  // 1: no message follows
  std::int32_t pulses = 0;
  std::int32_t reports = 0;
};

// What is known of another rank; ages in seconds.
struct PulseNews {
  double tick_age = 0;
  double beat_age = 0;
  Pulse pulse;
  std::int64_t rank = 0;
};
struct ReportNews {
  std::int64_t rank = 0;
  Report report;
};

template <class T>
void append(std::vector<std::byte>& message, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  message.insert(message.end(), bytes.begin(), bytes.end());
}

// Takes a value off the front.
template <class T>
T next(std::span<const std::byte>& message) {
  T value;
  DDP_ASSERT(message.size() >= sizeof value);
  std::memcpy(&value, message.data(), sizeof value);
  message = message.subspan(sizeof value);
  return value;
}

std::uint64_t hash_of(const Report& report) {
  const auto text = [](const auto& characters) { return std::string_view(characters.data(), characters.size()); };
  const std::hash<std::string_view> hash;
  constexpr std::uint64_t kPrime = 1099511628211U;
  const std::uint64_t flags =
      static_cast<std::uint64_t>(report.file_call) * 2 + static_cast<std::uint64_t>(report.stopped);
  return ((hash(text(report.doing)) * kPrime) ^ hash(text(report.threads))) * kPrime + flags + 1;
}

}  // namespace

PulseSpread::PulseSpread(PulseBoard& board, int rank, int size) : rank_(rank), few_(size <= kFewRanks) {
  for (int distance = 1; distance < size; distance = few_ ? distance + 1 : distance * 2) {
    targets_.push_back((rank + distance) % size);
    sources_.push_back((rank - distance + size) % size);
  }
  told_.resize(targets_.size());
  for (Told& told : told_) {
    told.ticks.resize(static_cast<std::size_t>(size));
    told.reports.resize(static_cast<std::size_t>(size));
  }
  sources_left_.assign(sources_.size(), -1);
  if (!few_) board.hear_only(sources_);
}

bool PulseSpread::tells_all(double clock) const { return few_ || clock - alarm_at_ < kAlarmSeconds; }

bool PulseSpread::reports(const PulseBoard& board, double clock) { return board.seconds_still(clock) > kReportAfter; }

void PulseSpread::note_own(PulseBoard& board, bool leaving, double clock) {
  if (board.table()[static_cast<std::size_t>(rank_)].long_work != 0) long_work_at_ = clock;
  const bool misses = std::any_of(sources_.begin(), sources_.end(),
                                  [&](int source) { return board.seconds_silent(source, clock) > kMissedAfter; });
  if (misses || reports(board, clock)) alarm_at_ = clock;
  if (!few_) {
    if (!tells_all(clock)) {
      if (alarmed_) end_alarm(board);
      board.presume_heard(clock);
    }
    alarmed_ = tells_all(clock);
    board.note_long_work(long_work_at_);
  }
  if (leaving) left_ = std::max(left_, 0);
  count_left();
}

// As Communicator::barrier().
void PulseSpread::count_left() {
  for (std::size_t i = 0; i < sources_.size() && !few_; ++i) {
    const int round = static_cast<int>(i);
    if (left_ == round && sources_left_[i] >= round) left_ = round + 1;
  }
}

// What was told is out of date at the next one.
void PulseSpread::end_alarm(PulseBoard& board) {
  board.forget_others();
  for (Told& told : told_) {
    std::fill(told.ticks.begin(), told.ticks.end(), 0);
    std::fill(told.reports.begin(), told.reports.end(), 0);
  }
}

bool PulseSpread::all_leave(const PulseBoard& board) const {
  return few_ ? board.all_leave() : left_ == static_cast<int>(sources_.size());
}

// The ranks whose pulses are newer than what a target has been told.
std::vector<std::size_t> PulseSpread::news(const PulseBoard& board, Told& told) const {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < told.ticks.size(); ++rank) {
    const std::uint64_t ticks = board.table()[rank].ticks;
    if (ticks == told.ticks[rank] || rank == static_cast<std::size_t>(rank_)) continue;
    told.ticks[rank] = ticks;
    ranks.push_back(rank);
  }
  return ranks;
}

std::vector<std::size_t> PulseSpread::new_reports(const PulseBoard& board, Told& told) const {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < told.reports.size(); ++rank) {
    if (board.reports()[rank].ticks == 0) continue;
    const std::uint64_t hash = hash_of(board.reports()[rank]);
    if (hash == told.reports[rank]) continue;
    told.reports[rank] = hash;
    ranks.push_back(rank);
  }
  return ranks;
}

std::span<const std::byte> PulseSpread::message(const PulseBoard& board, std::size_t target, double clock) {
  Told& told = told_[target];
  std::vector<std::size_t> pulses;
  std::vector<std::size_t> new_ones;
  const auto ranks = static_cast<int>(told.ticks.size());
  const double between = ranks <= kRanksPerTable ? 0 : static_cast<double>(ranks) / kRanksPerTable / 4;
  if (tells_all(clock) && clock - told.at >= between) {
    told.at = clock;
    pulses = news(board, told);
    if (reports(board, clock)) new_ones = new_reports(board, told);
  }
  Summary summary;
  summary.own = board.table()[static_cast<std::size_t>(rank_)];
  summary.progress_age = board.seconds_still(clock);
  summary.alarm_age = clock - alarm_at_;
  summary.long_work_age = clock - long_work_at_;
  summary.left = left_;
  summary.last = all_leave(board) ? 1 : 0;
  summary.pulses = static_cast<std::int32_t>(pulses.size());
  summary.reports = static_cast<std::int32_t>(new_ones.size());
  told.message.clear();
  append(told.message, summary);
  for (const std::size_t rank : pulses) {
    const int number = static_cast<int>(rank);
    append(told.message, PulseNews{board.seconds_silent(number, clock), board.seconds_stuck(number, clock),
                                   board.table()[rank], number});
  }
  for (const std::size_t rank : new_ones) {
    append(told.message, ReportNews{static_cast<std::int64_t>(rank), board.reports()[rank]});
  }
  return told.message;
}

void PulseSpread::take(PulseBoard& board, std::size_t source, std::span<const std::byte> message, double clock) {
  const auto summary = next<Summary>(message);
  board.merge(sources_[source], summary.own, 0, 0, clock);
  if (!few_) {
    board.note_progress(clock - summary.progress_age);
    alarm_at_ = std::max(alarm_at_, clock - summary.alarm_age);
    long_work_at_ = std::max(long_work_at_, clock - summary.long_work_age);
  }
  sources_left_[source] = std::max(sources_left_[source], summary.left);
  count_left();
  for (std::int32_t i = 0; i < summary.pulses; ++i) {
    const auto news = next<PulseNews>(message);
    board.merge(static_cast<int>(news.rank), news.pulse, news.tick_age, news.beat_age, clock);
  }
  for (std::int32_t i = 0; i < summary.reports; ++i) {
    const auto news = next<ReportNews>(message);
    if (news.rank != rank_) board.note_report(static_cast<int>(news.rank), news.report);
  }
}

bool PulseSpread::is_last(std::span<const std::byte> message) { return next<Summary>(message).last != 0; }

}  // namespace ddp
