#include "unit/gradients/reducer_suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>

#include "base/error.h"
#include "base/partition.h"
#include "gradients/reducer.h"
#include "unit/comm/communicator_suite.h"

namespace ddp::testing {
namespace {

using ::testing::HasSubstr;

constexpr Reduction kAlgorithms[] = {Reduction::ring, Reduction::root, Reduction::tree};

// Element i of a shard's gradient; sums over a few shards are exact in any order.
float small_integer(std::int64_t step, int shard, std::size_t i) {
  return static_cast<float>((i + 3 * static_cast<std::size_t>(step)) % 1000 + static_cast<std::size_t>(shard) * 17);
}

void sums_are_exact(Communicator& ranks, const MakeReducer& make) {
  const int n = ranks.size();
  for (const Reduction algorithm : kAlgorithms) {
    for (const bool overlap : {true, false}) {
      for (const int shards : {n, n + 1, 3 * n}) {
        const ReducerConfig config = model_config(algorithm, overlap, shards);
        const ReducerRig rig = make(ranks, config);
        const Range run = part(shards, n, ranks.rank());
        ASSERT_EQ(rig.reducer->local_shards(), run.size());
        for (int step = 0; step < 3; ++step) {
          rig.reducer->begin_step(step);
          std::vector<std::vector<float>> values;  // asynchronous copies to a device read them until synchronisation
          for (auto shard = static_cast<int>(run.begin); shard < run.end; ++shard) {
            float* gradient = rig.reducer->shard_gradient();
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(gradient) % 64, 0U);
            std::vector<float>& of_shard = values.emplace_back(config.elements);
            for (std::size_t i = 0; i < config.elements; ++i) of_shard[i] = small_integer(step, shard, i);
            rig.backend->queue().upload(gradient, of_shard.data(), config.elements * sizeof(float));
            // Without calls of ready(), shard_done() covers everything.
            rig.reducer->shard_done();
          }
          rig.reducer->finish();
          rig.reducer->wait();
          std::vector<float> expected(config.elements);
          for (int shard = 0; shard < shards; ++shard) {
            for (std::size_t i = 0; i < config.elements; ++i) expected[i] += small_integer(step, shard, i);
          }
          EXPECT_TRUE(same_bits(gradient_of(rig, config.elements), expected));
        }
      }
    }
  }
}

void messages_are_summed(Communicator& ranks, const MakeReducer& make) {
  const ReducerConfig config = model_config(Reduction::ring, true, ranks.size());
  const ReducerRig rig = make(ranks, config);
  std::vector<double> message(5);
  const std::size_t bytes = message.size() * sizeof(double);
  const Memory memory = rig.backend->memory().allocate(bytes, "the message of a test");
  for (int step = 0; step < 3; ++step) {
    for (std::size_t i = 0; i < message.size(); ++i) message[i] = static_cast<double>(i) + 0.25 * ranks.rank() + step;
    run_step(rig, ranks, config, 45, step);
    rig.backend->queue().upload(memory.data(), message.data(), bytes);
    rig.reducer->sum(memory.at<double>(0), message.size());
    rig.backend->queue().download(message.data(), memory.data(), bytes);
    rig.reducer->wait();
    const int n = ranks.size();
    for (std::size_t i = 0; i < message.size(); ++i) {
      EXPECT_EQ(message[i], n * (static_cast<double>(i) + step) + 0.25 * n * (n - 1) / 2);
    }
  }
}

void tree_has_the_same_bits_for_any_number_of_ranks(Communicator& ranks, const MakeReducer& make) {
  for (int shards = ranks.size(); shards <= 9; ++shards) {
    const ReducerConfig config = model_config(Reduction::tree, shards % 2 == 0, shards);
    const ReducerRig rig = make(ranks, config);
    for (int step = 0; step < 2; ++step) {
      run_step(rig, ranks, config, 41, step);
      EXPECT_TRUE(
          same_bits(gradient_of(rig, config.elements), reference_tree_sum(41, step, 0, shards, config.elements)))
          << shards << " shards on " << ranks.size() << " ranks";
    }
  }
}

void overlap_changes_no_bit(Communicator& ranks, const MakeReducer& make) {
  for (const Reduction algorithm : kAlgorithms) {
    for (const int shards : {ranks.size(), 2 * ranks.size() + 1}) {
      const ReducerConfig with = model_config(algorithm, true, shards);
      const ReducerConfig without = model_config(algorithm, false, shards);
      const ReducerRig overlapping = make(ranks, with);
      const ReducerRig waiting = make(ranks, without);
      EXPECT_FALSE(waiting.reducer->overlaps());
      EXPECT_EQ(overlapping.reducer->overlaps(), ranks.size() > 1 && overlapping.sums->overlaps());
      for (int step = 0; step < 5; ++step) {
        run_step(overlapping, ranks, with, 43, step);
        run_step(waiting, ranks, without, 43, step);
        EXPECT_TRUE(same_bits(gradient_of(overlapping, with.elements), gradient_of(waiting, with.elements)));
      }
    }
  }
}

void all_ranks_have_the_same_bits(Communicator& ranks, const MakeReducer& make) {
  for (const Reduction algorithm : kAlgorithms) {
    const ReducerConfig config = model_config(algorithm, true, 2 * ranks.size());
    const ReducerRig rig = make(ranks, config);
    run_step(rig, ranks, config, 47, 0);
    std::vector<float> of_root = gradient_of(rig, config.elements);
    ranks.broadcast(std::as_writable_bytes(std::span(of_root)), 0);
    EXPECT_TRUE(same_bits(gradient_of(rig, config.elements), of_root));
  }
}

void fewer_elements_than_ranks(Communicator& ranks, const MakeReducer& make) {
  for (const Reduction algorithm : kAlgorithms) {
    for (const bool overlap : {true, false}) {
      for (const std::size_t elements : {0U, 1U, 2U, 3U}) {
        const std::vector<std::size_t> ones(elements, 1);
        const ReducerConfig config{algorithm, overlap, plan_buckets(ones, 4, 4), ranks.size() + 2, elements};
        const ReducerRig rig = make(ranks, config);
        run_step(rig, ranks, config, 53, 0);
        const std::vector<float> gradient = gradient_of(rig, elements);
        const std::vector<float> sum = reference_tree_sum(53, 0, 0, config.shards, elements);
        for (std::size_t i = 0; i < elements; ++i) EXPECT_NEAR(gradient[i], sum[i], 1e-2);
      }
    }
  }
}

void silent_rank_is_named_with_step_and_bucket(Communicator& ranks, const MakeReducer& make) {
  if (ranks.size() == 1) return;
  for (const Reduction algorithm : kAlgorithms) {
    const std::unique_ptr<Communicator> copy = ranks.duplicate();
    copy->set_timeout(0.5);
    const ReducerConfig config = model_config(algorithm, algorithm != Reduction::root, ranks.size());
    ranks.barrier();
    const ReducerRig rig = make(*copy, config);
    if (ranks.rank() != 0) {
      try {
        run_step(rig, ranks, config, 59, 7);
        ADD_FAILURE() << "rank 0 is silent: this cannot end well";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::rank_lost);
        EXPECT_THAT(error.what(), HasSubstr("step 7, gradient bucket 1 of "));
        EXPECT_THAT(error.what(), HasSubstr("waited 0.5 s for "));
      }
    }
    ranks.barrier();
  }
}

void calls_in_the_wrong_order_are_errors(Communicator& ranks, const MakeReducer& make) {
  const ReducerRig rig = make(ranks, model_config(Reduction::tree, true, 2 * ranks.size()));
  Reducer& reducer = *rig.reducer;
  EXPECT_THROW(reducer.ready(0), Error);
  EXPECT_THROW(reducer.shard_done(), Error);
  EXPECT_THROW(reducer.finish(), Error);
  reducer.shard_gradient();
  reducer.shard_done();
  EXPECT_THROW(reducer.finish(), Error) << "one of two shards is missing";
  EXPECT_THROW(reducer.begin_step(1), Error);
  ranks.barrier();
}

void wrong_configurations_are_errors(Communicator& ranks, const MakeReducer& make) {
  const int n = ranks.size();
  try {
    make(ranks, model_config(Reduction::tree, true, n - 1));
    ADD_FAILURE() << "a rank without work should be refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("--logical-shards at least " + std::to_string(n)));
  }
  ReducerConfig gap = model_config(Reduction::ring, true, n);
  gap.buckets.pop_back();
  EXPECT_THROW(make(ranks, gap), Error);
  if (n == 1) return;
  ReducerConfig other = model_config(Reduction::ring, true, n);
  if (ranks.rank() == n - 1) other.buckets = plan_buckets(model_parameters(), 4000, 4004);
  try {
    make(ranks, other);
    ADD_FAILURE() << "different plans should be refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("start all ranks with the same program and options"));
  }
}

}  // namespace

const std::vector<ReducerCase>& reducer_cases() {
  static const std::vector<ReducerCase> cases = {
      {"SumsAreExact", sums_are_exact},
      {"MessagesAreSummed", messages_are_summed},
      {"TreeHasTheSameBitsForAnyNumberOfRanks", tree_has_the_same_bits_for_any_number_of_ranks},
      {"OverlapChangesNoBit", overlap_changes_no_bit},
      {"AllRanksHaveTheSameBits", all_ranks_have_the_same_bits},
      {"FewerElementsThanRanks", fewer_elements_than_ranks},
      {"SilentRankIsNamedWithStepAndBucket", silent_rank_is_named_with_step_and_bucket},
      {"CallsInTheWrongOrderAreErrors", calls_in_the_wrong_order_are_errors},
      {"WrongConfigurationsAreErrors", wrong_configurations_are_errors},
  };
  return cases;
}

const std::vector<std::size_t>& model_parameters() {
  static const std::vector<std::size_t> sizes = {53, 7, 1301, 11, 0, 2999, 101, 509, 13};
  return sizes;
}

ReducerConfig model_config(Reduction algorithm, bool overlap, int shards) {
  const std::vector<std::size_t>& sizes = model_parameters();
  return {algorithm, overlap, plan_buckets(sizes, 2000, 4000), shards,
          std::accumulate(sizes.begin(), sizes.end(), std::size_t{0})};
}

void run_step(const ReducerRig& rig, Communicator& ranks, const ReducerConfig& config, std::uint64_t seed,
              std::int64_t step) {
  Reducer& reducer = *rig.reducer;
  Backend& backend = *rig.backend;
  const Range run = part(config.shards, ranks.size(), ranks.rank());
  // The buffer's previous content is undefined.
  const std::vector<float> garbage(config.elements, 1e30F);
  std::vector<std::vector<float>> values;  // asynchronous copies to a device read them until synchronisation
  reducer.begin_step(step);
  for (auto shard = static_cast<int>(run.begin); shard < run.end; ++shard) {
    const std::vector<float>& of_shard = values.emplace_back(random_gradient(seed, step, shard, config.elements));
    float* gradient = reducer.shard_gradient();
    backend.queue().upload(gradient, garbage.data(), config.elements * sizeof(float));
    const auto compute = [&](std::size_t begin, std::size_t end) {
      backend.queue().upload(gradient + begin, of_shard.data() + begin, (end - begin) * sizeof(float));
      reducer.ready(begin);
    };
    for (const Bucket& bucket : config.buckets) {
      // In two halves, the second first, in the order in which gradients become ready.
      const std::size_t middle = bucket.begin + bucket.elements() / 2;
      compute(middle, bucket.end);
      compute(bucket.begin, middle);
    }
    reducer.shard_done();
  }
  reducer.finish();
  reducer.wait();
}

std::vector<float> gradient_of(const ReducerRig& rig, std::size_t elements) {
  std::vector<float> values(elements);
  rig.backend->queue().download(values.data(), rig.reducer->gradient(), elements * sizeof(float));
  rig.backend->queue().synchronize();
  return values;
}

ReducerRig make_host_reducer(Communicator& ranks, const ReducerConfig& config) {
  ReducerRig rig;
  rig.backend = make_cpu_backend();
  rig.sums = make_host_communicator(ranks, rig.backend->device(), {config.algorithm, config.shards});
  rig.reducer = std::make_unique<Reducer>(ranks, *rig.backend, *rig.sums, config);
  return rig;
}

ReducerRig make_staged_reducer(Communicator& ranks, const ReducerConfig& config) {
  ReducerRig rig;
  rig.backend = make_cpu_backend();
  rig.sums = make_staged_communicator(ranks, rig.backend->device(), {config.algorithm, config.shards});
  rig.reducer = std::make_unique<Reducer>(ranks, *rig.backend, *rig.sums, config);
  return rig;
}

}  // namespace ddp::testing
