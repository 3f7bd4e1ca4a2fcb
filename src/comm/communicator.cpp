#include "comm/communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/heartbeat.h"
#include "base/text.h"
#include "comm/backoff.h"

namespace ddp {
namespace {

template <class T>
bool is_nan(T value) {
  return value != value;  // NOLINT(misc-redundant-expression)
}

template <class T>
T combine(T a, T b, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return a + b;
    case ReduceOp::min:
      return (a < b || is_nan(a)) ? a : b;  // a NaN on either side wins
    case ReduceOp::max:
      break;
  }
  return (a > b || is_nan(a)) ? a : b;
}

// Long waits are reported to the watchdog.
constexpr double kLongWait = 0.2;

void copy_bytes(std::span<std::byte> to, std::span<const std::byte> from) {
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

std::string rank_list(std::span<const int> ranks) {
  std::vector<std::string> words;
  words.reserve(ranks.size());
  for (const int rank : ranks) words.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(words);
}

void Communicator::throw_if_unusable(const char* operation) const {
  if (failure_.empty()) return;
  throw Error(ExitCode::rank_lost, fmt::format("no {} after an earlier error: {}", operation, failure_));
}

void Communicator::fail(const std::string& why) noexcept {
  if (failure_.empty()) failure_ = why;
  give_up();
}

void Communicator::exchange(std::span<const Outgoing> out, std::span<const Incoming> in, const char* operation) {
  throw_if_unusable(operation);
  if (out.empty() && in.empty()) return;
  try {
    post(out, in);
    wait(operation);
  } catch (const std::exception& error) {
    fail(error.what());
    throw;
  }
}

void Communicator::wait(const char* operation) {
  Backoff backoff(eager_seconds_);
  double begin = waiting_clock();
  std::optional<RankWait> told;
  for (;;) {
    const Progress progress = poll();
    if (progress == Progress::all) return;
    if (progress == Progress::some) {
      heartbeat();
      told.reset();
      backoff.reset();
      begin = waiting_clock();
      continue;
    }
    const bool interrupted = interrupted_.load();
    const double clock = waiting_clock();
    const bool late = clock - std::max(begin, progress_elsewhere()) > timeout_;
    const bool untold = !told && clock - begin > kLongWait;
    if (interrupted || late || untold) {
      // The last peer may have responded since the poll; then the next poll ends the wait.
      const std::vector<int> peers = pending_peers();
      if (peers.empty()) continue;
      check(!interrupted, ExitCode::rank_lost, "{} was interrupted while it waited for {}", operation,
            rank_list(peers));
      check(!late, ExitCode::rank_lost,
            "waited {:g} s for {} in {}: a rank hung or died; see its last message, or raise --timeout if it was only "
            "slow",
            timeout_, rank_list(peers), operation);
      if (untold) told.emplace(operation, peers.front());
    }
    pause(backoff);
  }
}

void Communicator::pause(Backoff& backoff) { backoff.pause(); }

// Dissemination (Hensgen, Finkel, Manber 1988): after round i, a rank has heard from the 2^(i+1) ranks up to itself.
void Communicator::barrier() {
  for (int distance = 1; distance < size(); distance *= 2) {
    const Outgoing outgoing{{}, (rank() + distance) % size()};
    const Incoming incoming{{}, (rank() - distance + size()) % size()};
    exchange(std::span(&outgoing, 1), std::span(&incoming, 1), "barrier");
  }
}

void Communicator::broadcast(std::span<std::byte> data, int root) {
  DDP_ASSERT(root >= 0 && root < size());
  // Numbered from the root, rank r receives from r without its lowest set bit and sends to r plus each lower power of
  // two.
  const int ranks = size();
  const int relative = (rank() - root + ranks) % ranks;
  const auto absolute = [&](int r) { return (r + root) % ranks; };
  int lowest_bit = 1;
  while (lowest_bit < ranks && (relative & lowest_bit) == 0) lowest_bit *= 2;
  if (relative != 0) {
    const Incoming incoming{data, absolute(relative - lowest_bit)};
    exchange({}, std::span(&incoming, 1), "broadcast");
  }
  outgoing_.clear();
  for (int bit = lowest_bit / 2; bit > 0; bit /= 2) {
    if (relative + bit < ranks) outgoing_.push_back({data, absolute(relative + bit)});
  }
  exchange(outgoing_, {}, "broadcast");
}

std::string Communicator::broadcast_text(const std::string& text, int root) {
  std::uint64_t length = text.size();
  broadcast(std::as_writable_bytes(std::span(&length, 1)), root);
  std::string result = rank() == root ? text : std::string(length, '\0');
  broadcast(std::as_writable_bytes(std::span(result)), root);
  return result;
}

// Bruck et al. 1997: before each round a rank holds the blocks of consecutive ranks starting with itself, and receives
// as many again from the rank after those.
void Communicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const char* operation) {
  const std::size_t block = mine.size();
  const auto ranks = static_cast<std::size_t>(size());
  DDP_ASSERT(all.size() == block * ranks);
  from_here_.resize(all.size());
  const std::span<std::byte> blocks(from_here_);
  copy_bytes(blocks.first(block), mine);
  for (std::size_t have = 1; have < ranks; have *= 2) {
    const std::size_t bytes = std::min(have, ranks - have) * block;
    const int distance = static_cast<int>(have);
    const Outgoing outgoing{blocks.first(bytes), (rank() - distance + size()) % size()};
    const Incoming incoming{blocks.subspan(have * block, bytes), (rank() + distance) % size()};
    exchange(std::span(&outgoing, 1), std::span(&incoming, 1), operation);
  }
  const std::size_t before = static_cast<std::size_t>(rank()) * block;
  copy_bytes(all.subspan(before), blocks.first(all.size() - before));
  copy_bytes(all.first(before), blocks.last(before));
}

std::vector<std::string> Communicator::all_gather_text(const std::string& mine, const char* operation) {
  const auto ranks = static_cast<std::size_t>(size());
  const std::uint64_t length = mine.size();
  std::vector<std::uint64_t> lengths(ranks);
  all_gather(std::as_bytes(std::span(&length, 1)), std::as_writable_bytes(std::span(lengths)), operation);
  // Padded to the longest.
  const std::size_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::string padded = mine;
  padded.resize(longest);
  std::string all(longest * ranks, '\0');
  if (longest > 0) all_gather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)), operation);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < ranks; ++r) texts.push_back(all.substr(r * longest, lengths[r]));
  return texts;
}

template <class T>
void Communicator::all_reduce_in_rank_order(std::span<T> values, ReduceOp op) {
  if (size() == 1) return;
  gathered_.resize(values.size_bytes() * static_cast<std::size_t>(size()));
  all_gather(std::as_bytes(values), gathered_);
  for (std::size_t i = 0; i < values.size(); ++i) {
    T result{};
    for (int r = 0; r < size(); ++r) {
      T value{};
      std::memcpy(&value, &gathered_[static_cast<std::size_t>(r) * values.size_bytes() + i * sizeof(T)], sizeof(T));
      result = r == 0 ? value : combine(result, value, op);
    }
    values[i] = result;
  }
}

void Communicator::all_reduce(std::span<double> values, ReduceOp op) { all_reduce_in_rank_order(values, op); }

void Communicator::all_reduce(std::span<std::int64_t> values, ReduceOp op) { all_reduce_in_rank_order(values, op); }

void Communicator::send(std::span<const std::byte> data, int to) {
  const Outgoing outgoing{data, to};
  exchange(std::span(&outgoing, 1), {}, "send");
}

void Communicator::receive(std::span<std::byte> data, int from) {
  const Incoming incoming{data, from};
  exchange({}, std::span(&incoming, 1), "receive");
}

void Communicator::send_receive(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) {
  DDP_ASSERT((to == rank()) == (from == rank()));
  if (to == rank()) {
    DDP_ASSERT(out.size() == in.size());
    copy_bytes(in, out);
    return;
  }
  const Outgoing outgoing{out, to};
  const Incoming incoming{in, from};
  exchange(std::span(&outgoing, 1), std::span(&incoming, 1), "send_receive");
}

}  // namespace ddp
