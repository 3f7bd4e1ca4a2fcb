#include "comm/communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/status/heartbeat.h"
#include "base/text/text.h"
#include "comm/transport/backoff.h"

namespace ddp {
namespace {

// Long waits are reported to the watchdog.
constexpr double kLongWait = 0.2;

// Where a rank is in a binomial tree whose ranks are numbered from the root: rank r has r without its lowest set bit as its
// parent, and as children r plus each lower power of two, the farthest first.
class TreePlace {
 public:
  TreePlace(int rank, int root, int ranks);

  int parent() const { return parent_; }    // -1: of the root
  int subtree() const { return subtree_; }  // ranks from this one on, with itself
  std::span<const int> children() const { return std::span(children_).first(count_); }

 private:
  int parent_ = -1;
  int subtree_ = 1;
  std::array<int, 32> children_{};
  std::size_t count_ = 0;
};

TreePlace::TreePlace(int rank, int root, int ranks) {
  const int relative = (rank - root + ranks) % ranks;
  const auto absolute = [&](int r) { return (r + root) % ranks; };
  int lowest_bit = 1;
  while (lowest_bit < ranks && (relative & lowest_bit) == 0) lowest_bit *= 2;
  if (relative != 0) parent_ = absolute(relative - lowest_bit);
  subtree_ = std::min(lowest_bit, ranks - relative);
  for (int bit = lowest_bit / 2; bit > 0; bit /= 2) {
    if (relative + bit < ranks) children_[count_++] = absolute(relative + bit);
  }
}

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
  sent_.messages += out.size();
  for (const Outgoing& message : out) sent_.bytes += message.data.size();
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
  const TreePlace place(rank(), root, size());
  if (place.parent() >= 0) {
    const Incoming incoming{data, place.parent()};
    exchange({}, std::span(&incoming, 1), "broadcast");
  }
  outgoing_.clear();
  for (const int child : place.children()) outgoing_.push_back({data, child});
  exchange(outgoing_, {}, "broadcast");
}

namespace {

// A text travels with its length in a first message of this size, which holds all of a short one.
constexpr std::size_t kFirstPiece = 64;
using FirstPiece = std::array<std::byte, kFirstPiece>;
constexpr std::size_t kTextInFirst = kFirstPiece - sizeof(std::uint64_t);

FirstPiece first_piece(const std::string& text) {
  FirstPiece piece{};
  const std::uint64_t length = text.size();
  std::memcpy(piece.data(), &length, sizeof length);
  std::memcpy(piece.data() + sizeof length, text.data(), std::min(text.size(), kTextInFirst));
  return piece;
}

}  // namespace

void Communicator::send_text(const std::string& text, std::span<const int> to, const char* operation) {
  const FirstPiece piece = first_piece(text);
  outgoing_.clear();
  for (const int rank : to) {
    outgoing_.push_back({piece, rank});
    if (text.size() > kTextInFirst) outgoing_.push_back({std::as_bytes(std::span(text)).subspan(kTextInFirst), rank});
  }
  exchange(outgoing_, {}, operation);
}

std::string Communicator::receive_text(int from, const char* operation) {
  FirstPiece piece{};
  const Incoming first{piece, from};
  exchange({}, std::span(&first, 1), operation);
  std::uint64_t length = 0;
  std::memcpy(&length, piece.data(), sizeof length);
  std::string text(length, '\0');
  std::memcpy(text.data(), piece.data() + sizeof length, std::min<std::size_t>(length, kTextInFirst));
  if (length <= kTextInFirst) return text;
  const Incoming rest{std::as_writable_bytes(std::span(text)).subspan(kTextInFirst), from};
  exchange({}, std::span(&rest, 1), operation);
  return text;
}

std::string Communicator::broadcast_text(const std::string& text, int root) {
  DDP_ASSERT(root >= 0 && root < size());
  const TreePlace place(rank(), root, size());
  const std::string result = place.parent() < 0 ? text : receive_text(place.parent(), "broadcast");
  if (!place.children().empty()) send_text(result, place.children(), "broadcast");
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

void Communicator::gather(std::span<const std::byte> mine, std::span<std::byte> all, const char* operation) {
  const std::size_t block = mine.size();
  DDP_ASSERT(all.size() == (rank() == 0 ? block * static_cast<std::size_t>(size()) : 0));
  const TreePlace place(rank(), 0, size());
  std::span<std::byte> blocks = all;
  if (rank() != 0) {
    from_here_.resize(block * static_cast<std::size_t>(place.subtree()));
    blocks = from_here_;
  }
  copy_bytes(blocks.first(block), mine);
  // The last child has the ranks directly behind this one.
  const std::span<const int> children = place.children();
  for (auto child = children.rbegin(); child != children.rend(); ++child) {
    const auto first = static_cast<std::size_t>(*child - rank());
    const auto count = static_cast<std::size_t>(TreePlace(*child, 0, size()).subtree());
    const Incoming incoming{blocks.subspan(first * block, count * block), *child};
    exchange({}, std::span(&incoming, 1), operation);
  }
  if (place.parent() < 0) return;
  const Outgoing outgoing{blocks, place.parent()};
  exchange(std::span(&outgoing, 1), {}, operation);
}

namespace {

// The texts of consecutive ranks, equal neighbours once: "COUNT LENGTH TEXT" for each run.
class TextRuns {
 public:
  TextRuns() = default;
  explicit TextRuns(const std::string& packed) { add(packed); }
  void add(std::size_t count, const std::string& text) {
    if (!runs_.empty() && runs_.back().second == text) {
      runs_.back().first += count;
    } else {
      runs_.emplace_back(count, text);
    }
  }
  void add(const std::string& packed) {
    const char* at = packed.data();
    const char* const end = at + packed.size();
    const auto number = [&] {
      std::size_t value = 0;
      at = std::from_chars(at, end, value).ptr + 1;
      return value;
    };
    while (at < end) {
      const std::size_t count = number();
      const std::size_t length = number();
      add(count, std::string(at, length));
      at += length;
    }
  }
  std::string pack() const {
    std::string packed;
    for (const auto& [count, text] : runs_) packed += fmt::format("{} {} {}", count, text.size(), text);
    return packed;
  }
  std::vector<std::string> texts() const {
    std::vector<std::string> all;
    for (const auto& [count, text] : runs_) all.insert(all.end(), count, text);
    return all;
  }

 private:
  std::vector<std::pair<std::size_t, std::string>> runs_;
};

}  // namespace

// On rank 0, those of all ranks.
std::string Communicator::packed_texts(const std::string& mine, const char* operation) {
  const TreePlace place(rank(), 0, size());
  TextRuns runs;
  runs.add(1, mine);
  const std::span<const int> children = place.children();
  for (auto child = children.rbegin(); child != children.rend(); ++child) runs.add(receive_text(*child, operation));
  std::string packed = runs.pack();
  const int parent = place.parent();
  if (parent >= 0) send_text(packed, std::span(&parent, 1), operation);
  return packed;
}

std::vector<std::string> Communicator::gather_text(const std::string& mine, const char* operation) {
  const std::string packed = packed_texts(mine, operation);
  return rank() == 0 ? TextRuns(packed).texts() : std::vector<std::string>();
}

std::vector<std::string> Communicator::all_gather_text(const std::string& mine, const char* operation) {
  const TreePlace place(rank(), 0, size());
  std::string packed = packed_texts(mine, operation);
  if (place.parent() >= 0) packed = receive_text(place.parent(), operation);
  if (!place.children().empty()) send_text(packed, place.children(), operation);
  return TextRuns(packed).texts();
}

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
