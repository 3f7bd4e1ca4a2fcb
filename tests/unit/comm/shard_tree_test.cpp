#include "comm/sums/shard_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "base/random.h"
#include "comm/transport/threads.h"
#include "unit/comm/communicator_suite.h"

namespace ddp {
namespace {

void collect_nodes(Range node, std::vector<Range>& nodes) {
  nodes.push_back(node);
  if (node.size() == 1) return;
  const std::int64_t middle = tree_split(node);
  collect_nodes({node.begin, middle}, nodes);
  collect_nodes({middle, node.end}, nodes);
}

TEST(ShardTree, SplitsAtTheLargestPowerOfTwo) {
  EXPECT_EQ(tree_split({0, 2}), 1);
  EXPECT_EQ(tree_split({0, 5}), 4);
  EXPECT_EQ(tree_split({0, 8}), 4);
  EXPECT_EQ(tree_split({4, 7}), 6);
  EXPECT_EQ(tree_split({8, 17}), 16);
}

TEST(ShardTree, HoldsThePartialSumsOfTheExample) {
  EXPECT_EQ(partial_sums(5, {0, 3}), (std::vector<Range>{{0, 2}, {2, 3}}));
  EXPECT_EQ(partial_sums(5, {3, 5}), (std::vector<Range>{{3, 4}, {4, 5}}));
  EXPECT_EQ(partial_sums(8, {4, 8}), (std::vector<Range>{{4, 8}}));
  EXPECT_EQ(partial_sums(8, {0, 8}), (std::vector<Range>{{0, 8}}));
  EXPECT_EQ(partial_sums(8, {3, 3}), (std::vector<Range>{}));
}

TEST(ShardTree, PartialSumsAreTheLargestNodesOfARun) {
  Random random(1, 0);
  for (int round = 0; round < 300; ++round) {
    const auto shards = static_cast<std::int64_t>(1 + random.below(70));
    const auto begin = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(shards)));
    const Range run{begin,
                    begin + 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(shards - begin)))};
    std::vector<Range> nodes;
    collect_nodes({0, shards}, nodes);
    std::vector<Range> expected;
    for (const Range node : nodes) {
      const auto lies_within = [](Range part, Range whole) {
        return whole.begin <= part.begin && part.end <= whole.end;
      };
      const bool largest = std::none_of(nodes.begin(), nodes.end(), [&](Range other) {
        return other != node && lies_within(node, other) && lies_within(other, run);
      });
      if (lies_within(node, run) && largest) expected.push_back(node);
    }
    std::sort(expected.begin(), expected.end(), [](Range a, Range b) { return a.begin < b.begin; });
    EXPECT_EQ(partial_sums(shards, run), expected) << shards << " shards, run " << run.begin << " to " << run.end;
  }
}

TEST(ShardTree, AccumulationAddsTheNodesOfTheTreeAlone) {
  for (std::int64_t shards = 1; shards <= 40; ++shards) {
    std::vector<Range> nodes;
    collect_nodes({0, shards}, nodes);
    for (std::int64_t ranks = 1; ranks <= shards; ++ranks) {
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const Range run = part(shards, ranks, rank);
        const Accumulation plan = plan_accumulation(shards, run);
        ASSERT_EQ(plan.merges.size(), static_cast<std::size_t>(run.size()));
        std::vector<Range> stack;
        std::size_t most = 0;
        for (std::int64_t shard = run.begin; shard < run.end; ++shard) {
          stack.push_back({shard, shard + 1});
          most = std::max(most, stack.size());
          for (int merges = plan.merges[static_cast<std::size_t>(shard - run.begin)]; merges > 0; --merges) {
            ASSERT_GE(stack.size(), 2U);
            const Range right = stack.back();
            stack.pop_back();
            ASSERT_EQ(stack.back().end, right.begin);
            stack.back().end = right.end;
            ASSERT_NE(std::find(nodes.begin(), nodes.end(), stack.back()), nodes.end());
          }
        }
        EXPECT_EQ(stack, partial_sums(shards, run));
        EXPECT_EQ(plan.remaining, stack.size());
        EXPECT_EQ(plan.buffers, most);
        EXPECT_LE(plan.buffers, 2U * static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(run.size()))));
      }
    }
  }
}

// The communicators' case SameBitsForAnyNumberOfRanks covers up to 7 ranks; this one goes up to one rank per shard.
TEST(ShardTree, SumsHaveTheSameBitsForEveryNumberOfRanks) {
  for (int shards = 1; shards <= 9; ++shards) {
    for (int ranks = 1; ranks <= shards; ++ranks) {
      run_as_threads(ranks, [&](Communicator& communicator) {
        for (const std::size_t elements : {0U, 1U, 5U, 513U})
          testing::check_tree_sum(communicator, shards, elements, 3);
      });
    }
  }
}

// Runs of other lengths, as --balance on makes them.
TEST(ShardTree, SumsHaveTheSameBitsForEveryDivision) {
  constexpr std::size_t kElements = 57;
  const std::vector<float> expected = testing::reference_tree_sum(3, 0, 0, 9, kElements);
  const std::vector<std::vector<std::int64_t>> divisions = {{3, 3, 3}, {7, 1, 1}, {1, 1, 7}, {2, 5, 2}, {4, 1, 4}};
  for (const std::vector<std::int64_t>& counts : divisions) {
    run_as_threads(3, [&](Communicator& ranks) {
      ShardTree tree(9, 3, ranks.rank(), counts);
      EXPECT_EQ(tree.run(), part(9, 3, ranks.rank(), counts));
      const std::vector<Range> nodes = partial_sums(9, tree.run());
      std::vector<std::vector<float>> sums;
      std::vector<float*> partials;
      for (const Range node : nodes) {
        sums.push_back(testing::reference_tree_sum(3, 0, node.begin, node.end, kElements));
      }
      for (std::vector<float>& sum : sums) partials.push_back(sum.data());
      std::vector<float> scratch(tree.scratch_elements(kElements));
      tree.all_reduce_sum(ranks, partials, kElements, scratch);
      EXPECT_TRUE(testing::same_bits(sums.front(), expected));
    });
  }
}

// The data must be able to tell orders of addition apart; otherwise the tests above would prove nothing.
TEST(ShardTree, AnotherOrderGivesOtherBits) {
  const std::vector<float> tree = testing::reference_tree_sum(3, 0, 0, 9, 513);
  std::vector<float> sequential(513, 0.0F);
  for (int shard = 0; shard < 9; ++shard) {
    const std::vector<float> gradient = testing::random_gradient(3, 0, shard, 513);
    for (std::size_t i = 0; i < gradient.size(); ++i) sequential[i] += gradient[i];
  }
  EXPECT_FALSE(testing::same_bits(tree, sequential));
}

}  // namespace
}  // namespace ddp
