#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "unit/comm/communicator_suite.h"

namespace ddp::testing {
namespace {

void broadcast_from_every_root(Communicator& ranks) {
  for (const std::size_t bytes : kSizes) {
    for (int root = 0; root < ranks.size(); ++root) {
      std::vector<std::byte> data = pattern(ranks.rank(), 1, bytes);
      ranks.broadcast(data, root);
      EXPECT_EQ(data, pattern(root, 1, bytes)) << bytes << " bytes from " << root;
    }
  }
}

void broadcast_text_of_any_length(Communicator& ranks) {
  for (const std::string& text : {std::string(), std::string("plan: nhwc\nx"), std::string("a\0b", 3)}) {
    for (int root = 0; root < ranks.size(); ++root) {
      EXPECT_EQ(ranks.broadcast_text(ranks.rank() == root ? text : "not this", root), text);
    }
  }
}

void all_reduce_gives_exact_results(Communicator& ranks) {
  const int n = ranks.size();
  const double r = ranks.rank();
  std::vector<double> sums = {r, 1, -2 * r};
  ranks.all_reduce(sums, ReduceOp::sum);
  EXPECT_EQ(sums, (std::vector<double>{n * (n - 1) / 2.0, 1.0 * n, -1.0 * n * (n - 1)}));
  std::vector<double> least = {r, -r};
  ranks.all_reduce(least, ReduceOp::min);
  EXPECT_EQ(least, (std::vector<double>{0, 1.0 - n}));
  std::vector<std::int64_t> most = {ranks.rank(), -ranks.rank(), std::int64_t{1} << 60U};
  ranks.all_reduce(most, ReduceOp::max);
  EXPECT_EQ(most, (std::vector<std::int64_t>{n - 1, 0, std::int64_t{1} << 60U}));
  std::vector<std::int64_t> none;
  ranks.all_reduce(none, ReduceOp::sum);
  EXPECT_TRUE(none.empty());
}

void all_reduce_adds_in_rank_order(Communicator& ranks) {
  const auto value = [](int rank, std::size_t i) {
    return Random(17, static_cast<std::uint64_t>(rank), static_cast<std::uint32_t>(i)).normal_double();
  };
  // Also fewer than ranks.
  for (const std::size_t count : {1U, 2U, 5U, 100U, 1001U}) {
    std::vector<double> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = value(ranks.rank(), i);
    ranks.all_reduce(values, ReduceOp::sum);
    for (std::size_t i = 0; i < count; ++i) {
      double sum = value(0, i);
      for (int rank = 1; rank < ranks.size(); ++rank) sum += value(rank, i);
      ASSERT_EQ(values[i], sum) << i << " of " << count;
    }
  }
}

void tree_sums_of_doubles_have_the_same_bits_on_all_ranks(Communicator& ranks) {
  const auto value = [](int rank, std::size_t i) {
    return Random(19, static_cast<std::uint64_t>(rank), static_cast<std::uint32_t>(i)).normal_double();
  };
  std::vector<double> values(70);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(ranks.rank(), i);
  ranks.tree_sum(values);
  std::vector<double> of_root = values;
  ranks.broadcast(std::as_writable_bytes(std::span(of_root)), 0);
  EXPECT_EQ(values, of_root);
  for (std::size_t i = 0; i < values.size(); ++i) {
    double sum = 0;
    for (int rank = 0; rank < ranks.size(); ++rank) sum += value(rank, i);
    EXPECT_NEAR(values[i], sum, 1e-12 * ranks.size());
  }
}

void all_reduce_keeps_nan(Communicator& ranks) {
  for (int poisoned = 0; poisoned < ranks.size(); ++poisoned) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
      double value = ranks.rank() == poisoned ? std::numeric_limits<double>::quiet_NaN() : ranks.rank();
      ranks.all_reduce(std::span(&value, 1), op);
      EXPECT_TRUE(std::isnan(value));
    }
  }
}

void all_gather_keeps_rank_order(Communicator& ranks) {
  for (const std::size_t bytes : kSizes) {
    std::vector<std::byte> all(bytes * static_cast<std::size_t>(ranks.size()));
    ranks.all_gather(pattern(ranks.rank(), 2, bytes), all);
    std::vector<std::byte> expected;
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const std::vector<std::byte> theirs = pattern(rank, 2, bytes);
      expected.insert(expected.end(), theirs.begin(), theirs.end());
    }
    EXPECT_EQ(all, expected);
  }
}

void all_gather_text_keeps_length_and_order(Communicator& ranks) {
  for (const int longest : {0, 1, 3000}) {
    const auto text_of = [&](int rank) {
      return std::string(static_cast<std::size_t>(rank * longest / 2), static_cast<char>('a' + rank % 20));
    };
    const std::vector<std::string> texts = ranks.all_gather_text(text_of(ranks.rank()), "a test");
    ASSERT_EQ(texts.size(), static_cast<std::size_t>(ranks.size()));
    for (int rank = 0; rank < ranks.size(); ++rank) EXPECT_EQ(texts[static_cast<std::size_t>(rank)], text_of(rank));
  }
}

void equal_texts_keep_their_ranks(Communicator& ranks) {
  for (const int in_a_row : {1, 2, 3, 100}) {
    const auto text_of = [&](int rank) {
      return rank / in_a_row % 2 == 0 ? std::string() : "1 2 host " + std::string(90, 'x');
    };
    const std::vector<std::string> all = ranks.all_gather_text(text_of(ranks.rank()), "a test");
    const std::vector<std::string> on_root = ranks.gather_text(text_of(ranks.rank()), "a test");
    ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks.size()));
    for (int rank = 0; rank < ranks.size(); ++rank) EXPECT_EQ(all[static_cast<std::size_t>(rank)], text_of(rank));
    EXPECT_EQ(on_root, ranks.rank() == 0 ? all : std::vector<std::string>());
  }
}

void gather_keeps_rank_order(Communicator& ranks) {
  for (const std::size_t bytes : kSizes) {
    std::vector<std::byte> all(ranks.rank() == 0 ? bytes * static_cast<std::size_t>(ranks.size()) : 0);
    ranks.gather(pattern(ranks.rank(), 6, bytes), all);
    for (std::size_t rank = 0; rank * bytes < all.size() && bytes > 0; ++rank) {
      const auto theirs = std::span(all).subspan(rank * bytes, bytes);
      EXPECT_TRUE(std::ranges::equal(theirs, pattern(static_cast<int>(rank), 6, bytes))) << rank;
    }
  }
}

}  // namespace

std::vector<CommunicatorCase> collective_cases() {
  return {
      {"BroadcastFromEveryRoot", broadcast_from_every_root},
      {"BroadcastTextOfAnyLength", broadcast_text_of_any_length},
      {"AllReduceGivesExactResults", all_reduce_gives_exact_results},
      {"AllReduceAddsInRankOrder", all_reduce_adds_in_rank_order},
      {"AllReduceKeepsNan", all_reduce_keeps_nan},
      {"TreeSumsOfDoublesHaveTheSameBitsOnAllRanks", tree_sums_of_doubles_have_the_same_bits_on_all_ranks},
      {"AllGatherKeepsRankOrder", all_gather_keeps_rank_order},
      {"AllGatherTextKeepsLengthAndOrder", all_gather_text_keeps_length_and_order},
      {"EqualTextsKeepTheirRanks", equal_texts_keep_their_ranks},
      {"GatherKeepsRankOrder", gather_keeps_rank_order},
  };
}

}  // namespace ddp::testing
