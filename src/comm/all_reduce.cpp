// The reductions of a communicator, whose traffic is at most the array's size times about log2(size).
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/partition.h"
#include "comm/communicator.h"

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

}  // namespace

template <class T>
void Communicator::reduce_gathered(std::span<T> values, ReduceOp op) {
  gathered_.resize(values.size_bytes() * static_cast<std::size_t>(size()));
  all_gather(std::as_bytes(values), gathered_, "all_reduce");
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

// Recursive doubling, for what does not depend on the order: before each round 2^i ranks have the same values. The ranks behind
// the last power of two give theirs to another one first, and get the result in the end.
template <class T>
void Communicator::reduce_by_doubling(std::span<T> values, ReduceOp op) {
  constexpr const char* kOperation = "all_reduce";
  const int inner = static_cast<int>(std::bit_floor(static_cast<unsigned>(size())));
  const auto trade = [&](bool sends, bool receives, int peer) {
    gathered_.resize(values.size_bytes());
    const Outgoing outgoing{std::as_bytes(values), peer};
    const Incoming incoming{gathered_, peer};
    exchange(std::span(&outgoing, sends ? 1 : 0), std::span(&incoming, receives ? 1 : 0), kOperation);
  };
  const auto add_arrived = [&](bool theirs_first) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      T other{};
      std::memcpy(&other, &gathered_[i * sizeof(T)], sizeof(T));
      values[i] = theirs_first ? combine(other, values[i], op) : combine(values[i], other, op);
    }
  };
  if (rank() >= inner) {
    trade(true, false, rank() - inner);
    trade(false, true, rank() - inner);
    std::memcpy(values.data(), gathered_.data(), gathered_.size());
    return;
  }
  const bool has_outer = rank() + inner < size();
  if (has_outer) {
    trade(false, true, rank() + inner);
    add_arrived(false);
  }
  for (int distance = 1; distance < inner; distance *= 2) {
    const int peer = rank() ^ distance;
    trade(true, true, peer);
    add_arrived(peer < rank());
  }
  if (has_outer) trade(true, false, rank() + inner);
}

// Each rank gets what all have of its part of the array, in log2(size) messages of about half the array (Bruck et al. 1997).
// parts_ begins with this rank's own values, then has those of the ranks in front of it, each `most` values apart.
void Communicator::transpose(std::span<const double> values) {
  const int ranks = size();
  const auto count = static_cast<std::int64_t>(values.size());
  const auto part_of = [&](int rank) { return part(count, ranks, (rank % ranks + ranks) % ranks); };
  const auto most = static_cast<std::size_t>(part(count, ranks, 0).size());
  const auto at = [&](int place) { return static_cast<std::size_t>(place) * most; };
  parts_.resize(most * static_cast<std::size_t>(ranks));
  for (int place = 0; place < ranks; ++place) {
    const Range range = part_of(rank() + place);
    std::copy_n(values.begin() + range.begin, range.size(), parts_.begin() + static_cast<std::ptrdiff_t>(at(place)));
  }
  for (int distance = 1; distance < ranks; distance *= 2) {
    // At `owner`, what has this place is on its way from a rank before it to one behind it.
    const auto travels = [&](int owner, int place) {
      return static_cast<std::size_t>(part_of(owner - place % distance + place).size());
    };
    packed_.clear();
    std::size_t arrives = 0;
    const int from = (rank() - distance + ranks) % ranks;
    for (int place = distance; place < ranks; ++place) {
      if ((place & distance) == 0) continue;
      const double* const begin = parts_.data() + at(place);
      packed_.insert(packed_.end(), begin, begin + travels(rank(), place));
      arrives += travels(from, place);
    }
    arriving_.resize(arrives);
    const Outgoing outgoing{std::as_bytes(std::span(packed_)), (rank() + distance) % ranks};
    const Incoming incoming{std::as_writable_bytes(std::span(arriving_)), from};
    exchange(std::span(&outgoing, packed_.empty() ? 0 : 1), std::span(&incoming, arriving_.empty() ? 0 : 1),
             "all_reduce");
    const double* next = arriving_.data();
    for (int place = distance; place < ranks; ++place) {
      if ((place & distance) == 0) continue;
      const std::size_t size = travels(from, place);
      std::copy_n(next, size, parts_.data() + at(place));
      next += size;
    }
  }
}

// Parts as base/partition.h gives them, the first to rank 0 (Bruck et al. 1997).
void Communicator::all_gather_parts(std::span<const double> own, std::span<double> all) {
  const int ranks = size();
  const auto count = static_cast<std::int64_t>(all.size());
  // Elements of the parts of `number` ranks from `first` on.
  const auto elements = [&](int first, int number) {
    const int end = first % ranks + number;
    const auto behind = [&](int rank) { return rank == ranks ? count : part(count, ranks, rank).begin; };
    const std::int64_t begin = behind(first % ranks);
    return static_cast<std::size_t>(end <= ranks ? behind(end) - begin : count - begin + behind(end - ranks));
  };
  packed_.resize(all.size());
  const std::span<double> parts(packed_);
  std::copy(own.begin(), own.end(), parts.begin());
  for (int have = 1; have < ranks; have *= 2) {
    const int number = std::min(have, ranks - have);
    const std::span<double> out = parts.first(elements(rank(), number));
    const std::span<double> in = parts.subspan(elements(rank(), have), elements(rank() + have, number));
    const Outgoing outgoing{std::as_bytes(out), (rank() - have + ranks) % ranks};
    const Incoming incoming{std::as_writable_bytes(in), (rank() + have) % ranks};
    exchange(std::span(&outgoing, out.empty() ? 0 : 1), std::span(&incoming, in.empty() ? 0 : 1), "all_reduce");
  }
  const auto before = static_cast<std::size_t>(part(count, ranks, rank()).begin);
  std::copy_n(parts.begin(), all.size() - before, all.begin() + static_cast<std::ptrdiff_t>(before));
  std::copy_n(parts.begin() + static_cast<std::ptrdiff_t>(all.size() - before), before, all.begin());
}

// Every rank adds a part of the array in rank order, so that the sum has the bits of a single rank that adds all arrays.
void Communicator::sum_in_rank_order(std::span<double> values) {
  transpose(values);
  const auto ranks = static_cast<std::size_t>(size());
  const Range own = part(static_cast<std::int64_t>(values.size()), size(), rank());
  const std::size_t most = parts_.size() / ranks;
  const std::span<double> sum =
      values.subspan(static_cast<std::size_t>(own.begin), static_cast<std::size_t>(own.size()));
  for (std::size_t from = 0; from < ranks; ++from) {
    const std::size_t place = (static_cast<std::size_t>(rank()) + ranks - from) % ranks;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const double value = parts_[place * most + i];
      sum[i] = from == 0 ? value : sum[i] + value;
    }
  }
  all_gather_parts(sum, values);
}

void Communicator::all_reduce(std::span<double> values, ReduceOp op) {
  // Fewer messages, with the same bits.
  constexpr int kFewRanks = 8;
  if (size() == 1 || values.empty()) return;
  if (op != ReduceOp::sum) {
    reduce_by_doubling(values, op);
  } else if (size() <= kFewRanks) {
    reduce_gathered(values, op);
  } else {
    sum_in_rank_order(values);
  }
}

void Communicator::tree_sum(std::span<double> values) {
  constexpr int kFewRanks = 16;
  if (size() <= kFewRanks) {
    all_reduce(values, ReduceOp::sum);
  } else {
    reduce_by_doubling(values, ReduceOp::sum);
  }
}

void Communicator::all_reduce(std::span<std::int64_t> values, ReduceOp op) {
  if (size() > 1) reduce_by_doubling(values, op);
}

}  // namespace ddp
