#include "train/step/shard_statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "comm/transport/threads.h"
#include "model/zoo.h"

namespace ddp {
namespace {

BatchPlan plan_of(int ranks) {
  BatchOptions options;
  options.global_batch = 24;
  options.logical_shards = 6;
  return resolve_batch(options, ranks, 1000);
}

// Sets statistics that differ between shards.
void fill(ShardStatistics& statistics, const Range& shards, std::size_t count) {
  for (std::int64_t shard = shards.begin; shard < shards.end; ++shard) {
    for (std::size_t i = 0; i < count; ++i) {
      statistics.of_shard(shard)[i] = static_cast<float>(shard * shard) / 7.0F + static_cast<float>(i) * 0.1F;
    }
  }
}

TEST(ShardStatistics, ShardsKeepTheirsWhenTheyMove) {
  const Graph graph = make_model("mnist-slim", {1, 28, 28}, 10);
  const auto count = static_cast<std::size_t>(graph.statistic_count());
  run_as_threads(2, [&](Communicator& communicator) {
    const auto backend = make_cpu_backend();
    BatchPlan plan = plan_of(2);
    ShardStatistics statistics(*backend, graph, plan, communicator.rank());
    fill(statistics, plan.shards_of(communicator.rank()), count);
    EXPECT_EQ(plan.per_rank, 12);
    plan.divide({5, 1});
    EXPECT_EQ(plan.per_rank, 20);
    const Range mine = plan.shards_of(communicator.rank());
    EXPECT_EQ(mine, communicator.rank() == 0 ? (Range{0, 5}) : (Range{5, 6}));
    statistics.divide(communicator, mine);
    for (std::int64_t shard = mine.begin; shard < mine.end; ++shard) {
      EXPECT_EQ(statistics.of_shard(shard)[0], static_cast<float>(shard * shard) / 7.0F) << shard;
    }
  });
}

TEST(ShardStatistics, TheMeanDoesNotDependOnTheNumberOfRanks) {
  const Graph graph = make_model("mnist-slim", {1, 28, 28}, 10);
  const auto count = static_cast<std::size_t>(graph.statistic_count());
  std::vector<float> expected;
  for (const int ranks : {1, 2, 3, 4, 6}) {
    run_as_threads(ranks, [&](Communicator& communicator) {
      const auto backend = make_cpu_backend();
      const BatchPlan plan = plan_of(ranks);
      ShardStatistics statistics(*backend, graph, plan, communicator.rank());
      EXPECT_EQ(statistics.mean()[0], 0);          // a running mean
      EXPECT_EQ(statistics.mean()[count - 1], 1);  // a running variance
      fill(statistics, plan.shards_of(communicator.rank()), count);
      statistics.gather(communicator);
      const std::vector<float> mean(statistics.mean(), statistics.mean() + count);
      if (ranks == 1) expected = mean;
      EXPECT_EQ(mean, expected);

      // All shards continue with what rank 0 reads from a checkpoint.
      ShardStatistics resumed(*backend, graph, plan, communicator.rank());
      if (communicator.rank() == 0) {
        const std::vector<TensorView> from = statistics.shard_views();
        const std::vector<TensorView> to = resumed.shards_to_read(plan.shards);
        ASSERT_EQ(to.size(), 1U);
        EXPECT_EQ(to[0].shape, (std::vector<std::int64_t>{6, graph.statistic_count()}));
        std::copy_n(from[0].data, from[0].elements(), to[0].data);
      }
      resumed.broadcast(communicator);
      const Range mine = plan.shards_of(communicator.rank());
      for (std::int64_t shard = mine.begin; shard < mine.end; ++shard) {
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(resumed.of_shard(shard)[i], statistics.of_shard(shard)[i]) << shard << " " << i;
        }
      }
    });
  }
}

// A dropped step must not leave a trace, although its forward pass has updated the statistics, possibly with NaN.
TEST(ShardStatistics, ArePutBack) {
  const Graph graph = make_model("mnist-slim", {1, 28, 28}, 10);
  const auto count = static_cast<std::size_t>(graph.statistic_count());
  run_as_threads(2, [&](Communicator& communicator) {
    const auto backend = make_cpu_backend();
    const BatchPlan plan = plan_of(2);
    const Range mine = plan.shards_of(communicator.rank());
    ShardStatistics statistics(*backend, graph, plan, communicator.rank());
    fill(statistics, mine, count);
    statistics.gather(communicator);
    const std::vector<float> mean(statistics.mean(), statistics.mean() + count);
    statistics.keep(nullptr);
    for (std::int64_t shard = mine.begin; shard < mine.end; ++shard) {
      std::fill_n(statistics.of_shard(shard), count, std::numeric_limits<float>::quiet_NaN());
    }
    statistics.gather(communicator);
    EXPECT_TRUE(std::isnan(statistics.mean()[0]));
    statistics.put_back();
    statistics.gather(communicator);
    EXPECT_EQ(std::vector<float>(statistics.mean(), statistics.mean() + count), mean);
  });
}

// Slow copies move with their shards, and through a checkpoint.
TEST(ShardStatistics, SlowCopiesArePulledShardByShard) {
  const Graph graph = make_model("mnist-slim", {1, 28, 28}, 10);
  const auto count = static_cast<std::size_t>(graph.statistic_count());
  run_as_threads(2, [&](Communicator& communicator) {
    const auto backend = make_cpu_backend();
    BatchPlan plan = plan_of(2);
    ShardStatistics statistics(*backend, graph, plan, communicator.rank(), /*slow=*/true);
    Range mine = plan.shards_of(communicator.rank());
    fill(statistics, mine, count);
    statistics.pull(0.5F, nullptr);
    // Initially the mean is 0, the variance 1.
    const auto first = [](std::int64_t shard) { return static_cast<float>(shard * shard) / 7.0F; };
    for (std::int64_t shard = mine.begin; shard < mine.end; ++shard) {
      EXPECT_FLOAT_EQ(statistics.of_shard(shard)[0], first(shard) / 2);
      const float last = first(shard) + static_cast<float>(count - 1) * 0.1F;
      EXPECT_FLOAT_EQ(statistics.of_shard(shard)[count - 1], (1 + last) / 2);
    }
    plan.divide({5, 1});
    mine = plan.shards_of(communicator.rank());
    statistics.divide(communicator, mine);
    fill(statistics, mine, count);
    statistics.gather(communicator);
    const std::vector<float> mean(statistics.mean(), statistics.mean() + count);
    EXPECT_FLOAT_EQ(mean[0], (0 + 1 + 4 + 9 + 16 + 25) / 42.0F);
    ShardStatistics resumed(*backend, graph, plan, communicator.rank(), /*slow=*/true);
    if (communicator.rank() == 0) {
      const std::vector<TensorView> from = statistics.shard_views();
      EXPECT_EQ(from[0].shape, (std::vector<std::int64_t>{6, 2, graph.statistic_count()}));
      std::copy_n(from[0].data, from[0].elements(), resumed.shards_to_read(6)[0].data);
    }
    resumed.broadcast(communicator);
    for (std::int64_t shard = plan_of(2).shards_of(communicator.rank()).begin; shard < mine.end; ++shard) {
      if (shard < mine.begin) continue;
      resumed.pull(0, nullptr);  // back to the slow copy of the first half
      EXPECT_FLOAT_EQ(resumed.of_shard(shard)[0], first(shard) / 2);
    }
  });
}

// A checkpoint of three shards, with whose mean all of six begin.
TEST(ShardStatistics, OtherNumbersOfShardsBeginWithTheMean) {
  const Graph graph = make_model("mnist-slim", {1, 28, 28}, 10);
  const auto count = static_cast<std::size_t>(graph.statistic_count());
  for (const bool slow : {false, true}) {
    run_as_threads(2, [&](Communicator& communicator) {
      const auto backend = make_cpu_backend();
      const BatchPlan plan = plan_of(2);
      ShardStatistics statistics(*backend, graph, plan, communicator.rank(), slow);
      if (communicator.rank() == 0) {
        const TensorView rows = statistics.shards_to_read(3)[0];
        EXPECT_EQ(rows.shape[0], 3);
        for (std::size_t i = 0; i < rows.elements(); ++i) rows.data[i] = static_cast<float>(i);
        for (const TensorView& view : statistics.mean_views()) std::fill_n(view.data, view.elements(), 7.0F);
      }
      statistics.broadcast(communicator);
      EXPECT_EQ(statistics.mean()[0], 7) << "what the model's file has";
      const auto stride = static_cast<float>(slow ? 2 * count : count);
      const Range mine = plan.shards_of(communicator.rank());
      for (std::int64_t shard = mine.begin; shard < mine.end; ++shard) {
        EXPECT_EQ(statistics.of_shard(shard)[0], stride);
        EXPECT_EQ(statistics.of_shard(shard)[count - 1], stride + static_cast<float>(count - 1));
        if (slow) {
          EXPECT_EQ(statistics.of_shard(shard)[count], stride + static_cast<float>(count));
        }
      }
      statistics.gather(communicator);
      EXPECT_EQ(statistics.mean()[0], stride);
    });
  }
}

TEST(ShardStatistics, AllRanksKnowWhetherAnyIsNotFinite) {
  const Graph graph = make_model("mnist-slim", {1, 28, 28}, 10);
  const auto count = static_cast<std::size_t>(graph.statistic_count());
  run_as_threads(3, [&](Communicator& communicator) {
    const auto backend = make_cpu_backend();
    const BatchPlan plan = plan_of(3);
    ShardStatistics statistics(*backend, graph, plan, communicator.rank(), /*slow=*/true);
    statistics.gather(communicator);
    EXPECT_TRUE(statistics.finite());
    if (communicator.rank() == 2) statistics.of_shard(5)[count] = std::numeric_limits<float>::infinity();
    statistics.gather(communicator);
    EXPECT_FALSE(statistics.finite()) << "a slow copy";
    EXPECT_TRUE(std::isfinite(statistics.mean()[0]));
  });
}

// All shards' statistics are on rank 0 only, and a rank sends its own once.
TEST(ShardStatistics, ARankSendsItsOwn) {
  const Graph graph = make_model("resnet18", {3, 32, 32}, 10);
  const auto count = static_cast<std::size_t>(graph.statistic_count());
  for (const int ranks : {4, 16}) {
    BatchOptions options;
    options.global_batch = 64;
    options.logical_shards = 64;
    const BatchPlan plan = resolve_batch(options, ranks, 1000);
    run_as_threads(ranks, [&](Communicator& communicator) {
      const auto backend = make_cpu_backend();
      ShardStatistics statistics(*backend, graph, plan, communicator.rank());
      const std::uint64_t before = communicator.sent().bytes;
      statistics.gather(communicator);
      const auto own = static_cast<std::size_t>(plan.shards_of(communicator.rank()).size()) * count * sizeof(float);
      // The mean travels along a tree.
      const std::size_t mean =
          count * sizeof(float) * static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(ranks)));
      EXPECT_LE(communicator.sent().bytes - before, own + mean + 64 * static_cast<std::size_t>(ranks));
      EXPECT_EQ(statistics.shard_views().size(), communicator.rank() == 0 ? 1U : 0U);
    });
  }
}

TEST(ShardStatistics, ANetworkWithoutThemHasNone) {
  const auto backend = make_cpu_backend();
  ShardStatistics statistics(*backend, make_model("lenet", {1, 28, 28}, 10), plan_of(1), 0);
  EXPECT_EQ(statistics.of_shard(0), nullptr);
  EXPECT_EQ(statistics.mean(), nullptr);
  EXPECT_TRUE(statistics.mean_views().empty());
  EXPECT_TRUE(statistics.shard_views().empty());
}

}  // namespace
}  // namespace ddp
