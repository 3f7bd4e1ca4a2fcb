#include "train/parallel/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/transport/threads.h"
#include "model/cuts.h"
#include "model/initialize.h"
#include "model/zoo.h"
#include "train/parallel/pipeline_plan.h"
#include "train/parallel/pipeline_run.h"

namespace ddp::pipeline_tests {
namespace {

using ::testing::HasSubstr;

TEST(Pipeline, StagesOfAReplicaAreNeighbours) {
  for (int rank = 0; rank < 6; ++rank) {
    const PipelinePlace place = pipeline_place(3, 6, rank);
    EXPECT_EQ(place.replicas, 2);
    EXPECT_EQ(place.replica, rank / 3);
    EXPECT_EQ(place.stage, rank % 3);
    EXPECT_EQ(place.rank_of(place.replica, place.stage), rank);
  }
  try {
    (void)pipeline_place(4, 6, 0);
    FAIL() << "4 stages on 6 ranks";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("start 8 ranks"));
  }
}

// Executes the schedules of all stages as ranks do: one exchange between two tasks sends what the first gives and receives
// what the second needs, and ends when both neighbours have taken part. Returns whether all tasks are done.
bool completes(int stages, std::int64_t shards) {
  std::vector<std::vector<PipelineTask>> tasks;
  for (int s = 0; s < stages; ++s) tasks.push_back(pipeline_schedule({stages, 1, s, 0}, shards));
  // The exchange before task t of a stage is number t. A half of it is done when the other side is at the matching one.
  std::vector<std::size_t> at(tasks.size(), 0);
  const auto index_of = [&](std::size_t stage, PipelineTask task) {
    return static_cast<std::size_t>(std::find(tasks[stage].begin(), tasks[stage].end(), task) - tasks[stage].begin());
  };
  const auto can_leave = [&](std::size_t s) {
    const std::size_t t = at[s];
    if (t > 0) {  // what the task before gives
      const PipelineTask given = tasks[s][t - 1];
      const bool goes = given.backward ? s > 0 : s + 1 < tasks.size();
      const std::size_t to = given.backward ? s - 1 : s + 1;
      if (goes && at[to] < index_of(to, given)) return false;
    }
    if (t < tasks[s].size()) {
      const PipelineTask needed = tasks[s][t];
      const bool comes = needed.backward ? s + 1 < tasks.size() : s > 0;
      const std::size_t from = needed.backward ? s + 1 : s - 1;
      if (comes && at[from] < index_of(from, needed) + 1) return false;
    }
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < tasks.size(); ++s) {
      if (at[s] > tasks[s].size() || !can_leave(s)) continue;
      ++at[s];
      moved = true;
    }
  }
  return std::all_of(at.begin(), at.end(), [&](std::size_t a) { return a == tasks[0].size() + 1; });
}

TEST(Pipeline, SchedulesDoNotWaitForEachOtherForever) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (std::int64_t shards = 1; shards <= 20; ++shards) EXPECT_TRUE(completes(stages, shards)) << stages << shards;
  }
}

TEST(Pipeline, ScheduleKeepsFewShards) {
  for (int stage = 0; stage < 4; ++stage) {
    const PipelinePlace place{4, 1, stage, 0};
    std::int64_t kept = 0;
    std::int64_t most = 0;
    std::int64_t next_backward = 0;
    for (const PipelineTask& task : pipeline_schedule(place, 9)) {
      if (task.backward) {
        EXPECT_EQ(task.shard, next_backward++);
      }
      kept += task.backward ? -1 : 1;
      most = std::max(most, kept);
    }
    EXPECT_EQ(next_backward, 9);
    EXPECT_EQ(most, shards_in_flight(place, 9));
    EXPECT_EQ(most, 4 - stage);
  }
}

// A network, a batch in shards, and what the whole network computes of each.
struct Problem {
  // `frozen`: the beginnings of the names of parameters that are not trained.
  Problem(const std::string& model, const std::vector<std::int64_t>& counts, const std::vector<std::string>& frozen)
      : graph(make_model(model, {1, 28, 28}, 10)),
        samples(counts),
        batch(*std::max_element(counts.begin(), counts.end())) {
    std::mt19937 random{std::random_device{}()};
    std::int64_t all = 0;
    for (const std::int64_t count : counts) all += count;
    for (std::int64_t i = 0; i < all * 784; ++i) pixels.push_back(static_cast<std::uint8_t>(random()));
    for (std::int64_t i = 0; i < all; ++i) labels.push_back(static_cast<std::int32_t>(random() % 10));
    for (std::int64_t i = 0; i < all; ++i) keys.push_back(random());
    parameters.resize(static_cast<std::size_t>(graph.flat_elements()));
    initialize(graph, std::nullopt, 3, parameters);
    for (std::size_t p = 0; p < graph.parameters().size(); ++p) {
      const std::string& name = graph.parameters()[p].name;
      if (std::any_of(frozen.begin(), frozen.end(), [&](const auto& n) { return name.starts_with(n); })) {
        graph.freeze(p);
      }
    }
  }
  NetworkConfig config() const { return {batch, {1, 28, 28}, {1.0F / 255.0F}, {0.0F}, 0.1F}; }
  Samples shard(std::int64_t number) const {
    std::int64_t first = 0;
    for (std::int64_t s = 0; s < number; ++s) first += samples[static_cast<std::size_t>(s)];
    return {pixels.data() + first * 784, nullptr, labels.data() + first, samples[static_cast<std::size_t>(number)],
            keys.data() + first};
  }

  Graph graph;
  std::vector<std::int64_t> samples;
  std::int64_t batch;
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;
  std::vector<std::uint64_t> keys;
  std::vector<float> parameters;
};

struct Outcome {
  std::vector<double> losses;
  std::vector<std::vector<float>> gradients;  // of each shard
  std::vector<float> statistics;              // after all of them
};

Outcome whole(const Problem& problem, Precision precision) {
  omp_set_num_threads(1);
  const std::unique_ptr<Backend> backend = make_cpu_backend(precision);
  const LayoutPlan plan = plan_layouts(*backend, make_stages(problem.graph, problem.batch), ChoiceMode::fixed);
  Network network(*backend, problem.graph, problem.config(), plan);
  Outcome outcome;
  outcome.statistics.resize(static_cast<std::size_t>(problem.graph.statistic_count()), 1.0F);
  for (std::int64_t s = 0; s < std::ssize(problem.samples); ++s) {
    double loss = 0;
    double correct = 0;
    std::vector<float>& gradient = outcome.gradients.emplace_back(problem.parameters.size(), 0.0F);
    network.forward(Pass::training, {problem.parameters.data(), outcome.statistics.data()}, problem.shard(s),
                    {&loss, &correct, 0.01F});
    network.backward(problem.parameters.data(), gradient.data(), [](std::int64_t) {});
    outcome.losses.push_back(loss);
  }
  return outcome;
}

// The same shards through a pipeline of threads, and the bytes that they send.
void check_pipeline(const std::string& model, int stages, const std::vector<std::int64_t>& samples,
                    Precision precision = Precision::fp32, const std::vector<std::string>& frozen = {}) {
  const Problem problem(model, samples, frozen);
  const Outcome expected = whole(problem, precision);
  run_as_threads(stages, [&](Communicator& ranks) {
    omp_set_num_threads(1);
    const std::unique_ptr<Backend> backend = make_cpu_backend(precision);
    const std::vector<Stage> lowered = make_stages(problem.graph, problem.batch);
    const LayoutPlan layouts = plan_layouts(*backend, lowered, ChoiceMode::fixed);
    const std::vector<double> seconds(lowered.size(), 1.0);
    const PipelinePlace place = pipeline_place(stages, ranks.size(), ranks.rank());
    const PipelineShape shape{.stages = stages,
                              .ranks = stages,
                              .shards = static_cast<int>(samples.size()),
                              .samples = problem.batch,
                              .element = bytes_of(backend->ops().traits().activation_element),
                              .bucket_bytes = 1 << 20};
    const PipelinePlan plan = plan_pipeline(problem.graph, lowered, layouts,
                                            {seconds, seconds, std::vector<bool>(lowered.size())}, nullptr, shape);
    PipelineRank rank(place, ranks, plan.held);
    const auto stage = static_cast<std::size_t>(place.stage);
    NetworkConfig config = problem.config();
    config.stages = {static_cast<std::int64_t>(plan.first[stage]),
                     static_cast<std::int64_t>(place.last() ? lowered.size() : plan.first[stage + 1])};
    for (std::int64_t copy = 0; copy < shards_in_flight(place, std::ssize(samples)); ++copy) {
      rank.networks.push_back(std::make_unique<Network>(*backend, problem.graph, config, layouts));
    }
    PipelineRun run(rank, ranks, std::ssize(samples));
    const Range held = rank.held();
    const float* parameters = problem.parameters.data() + held.begin;
    std::vector<float> statistics(expected.statistics.size(), 1.0F);
    std::vector<double> losses(samples.size());
    std::vector<float> gradient(static_cast<std::size_t>(held.size()));
    for (int step = 0; step < 2; ++step) {
      std::fill(statistics.begin(), statistics.end(), 1.0F);
      run.pass([&](std::int64_t shard) { return samples[static_cast<std::size_t>(shard)]; },
               [&](Network& network, std::int64_t shard) {
                 double correct = 0;
                 network.forward(Pass::training, {parameters, statistics.data()}, problem.shard(shard),
                                 {&losses[static_cast<std::size_t>(shard)], &correct, 0.01F});
               },
               [&](Network& network, std::int64_t shard) {
                 std::fill(gradient.begin(), gradient.end(), 0.0F);
                 network.backward(parameters, gradient.data(), [](std::int64_t) {});
                 const float* same = expected.gradients[static_cast<std::size_t>(shard)].data() + held.begin;
                 EXPECT_EQ(std::memcmp(gradient.data(), same, gradient.size() * sizeof(float)), 0)
                     << model << ", stage " << stage << ", shard " << shard;
               });
      if (place.last()) {
        EXPECT_EQ(losses, expected.losses);
      }
      const Range own = statistics_of(problem.graph, lowered, config.stages);
      EXPECT_TRUE(std::equal(statistics.begin() + own.begin, statistics.begin() + own.end,
                             expected.statistics.begin() + own.begin));
    }
    auto sent = static_cast<std::int64_t>(run.bytes_sent());
    ranks.all_reduce(std::span(&sent, 1), ReduceOp::sum);
    const bool equal = std::all_of(samples.begin(), samples.end(), [&](auto count) { return count == problem.batch; });
    if (equal) {
      EXPECT_EQ(sent, 2 * static_cast<std::int64_t>(plan.pipeline.activation_bytes));
    }
  });
}

TEST(Pipeline, ComputesTheBitsOfTheWholeNetwork) {
  check_pipeline("lenet", 2, {8, 8, 8, 8});
  check_pipeline("lenet", 4, {16, 16, 16, 16, 16, 16});
  // Fewer shards than stages, and shards with fewer samples or none.
  check_pipeline("lenet", 3, {5});
  check_pipeline("lenet", 4, {20, 19, 0, 3, 0});
}

TEST(Pipeline, ComputesTheBitsOfAResidualNetwork) {
  check_pipeline("resnet18-d2l", 2, {2, 2, 2});
  check_pipeline("resnet18-d2l", 4, {2, 1, 1, 1, 1});
}

TEST(Pipeline, ComputesTheBitsInBf16) { check_pipeline("lenet", 2, {16, 16, 15}, Precision::bf16); }

// All of the first part, so that no gradient crosses a cut before the last; some of the last.
TEST(Pipeline, SendsNoGradientOfWhatIsFrozen) {
  check_pipeline("lenet", 4, {9, 9, 9, 9, 9}, Precision::fp32, {"conv1", "conv2", "fc2.bias"});
  check_pipeline("lenet", 2, {9, 9, 4}, Precision::bf16, {"conv1", "conv2", "fc1"});
  check_pipeline("resnet18-d2l", 4, {2, 2, 2}, Precision::fp32, {"0.", "1.", "resnet_block1."});
}

TEST(Pipeline, GathersAndSumsOverStages) {
  run_as_threads(6, [](Communicator& ranks) {
    const PipelinePlace place = pipeline_place(3, 6, ranks.rank());
    PipelineRank rank(place, ranks, {{0, 2}, {2, 3}, {3, 6}});
    std::vector<float> flat(6, -1);
    for (std::int64_t i = rank.held().begin; i < rank.held().end; ++i) {
      flat[static_cast<std::size_t>(i)] = static_cast<float>(10 * place.replica + i);
    }
    rank.gather(flat);
    const auto first = static_cast<float>(10 * place.replica);
    EXPECT_THAT(flat, ::testing::ElementsAre(first, first + 1, first + 2, first + 3, first + 4, first + 5));
    // In the order of the stages: 1 is lost beside 1e20 unless it comes last.
    const double values[] = {1e20, -1e20, 1};
    const double sum = rank.sum_over_stages([&](double before) { return before + values[place.stage]; });
    EXPECT_EQ(sum, 1);
    EXPECT_EQ(rank.stage_ranks().size(), 2);
    double replicas = place.replica;
    rank.stage_ranks().all_reduce(std::span(&replicas, 1), ReduceOp::sum);
    EXPECT_EQ(replicas, 1);
  });
}

// The last stage gets labels that it has not read.
TEST(Pipeline, SharesLabels) {
  run_as_threads(3, [](Communicator& ranks) {
    PipelineRank rank(pipeline_place(3, 3, ranks.rank()), ranks, {{0, 1}, {1, 2}, {2, 3}});
    rank.networks.resize(static_cast<std::size_t>(shards_in_flight(rank.place(), 3)));
    PipelineRun run(rank, ranks, 3);
    const std::vector<std::int32_t> read =
        ranks.rank() == 0 ? std::vector<std::int32_t>{3, 1, 4} : std::vector<std::int32_t>{0, 0, 0};
    Batch batch{.pixels = {}, .labels = read, .count = 3, .indices = {}};
    run.share_labels(batch);
    const std::vector<std::int32_t> expected = ranks.rank() == 1 ? read : std::vector<std::int32_t>{3, 1, 4};
    EXPECT_TRUE(std::equal(batch.labels.begin(), batch.labels.end(), expected.begin(), expected.end()));
  });
}

// By hand: 3 equal stages of which each takes 2 ms forward and 4 ms backward.
TEST(Pipeline, EstimatesAStep) {
  const Graph graph = make_model("lenet", {1, 28, 28}, 10);
  const std::vector<Stage> stages = make_stages(graph, 4);
  const std::unique_ptr<Backend> backend = make_cpu_backend();
  const LayoutPlan layouts = plan_layouts(*backend, stages, ChoiceMode::fixed);
  StageSeconds seconds{std::vector<double>(stages.size(), 2e-3), std::vector<double>(stages.size(), 4e-3),
                       std::vector<bool>(stages.size())};
  PipelineShape shape{.stages = 2, .ranks = 4, .shards = 8, .samples = 4, .bucket_bytes = 1 << 20};
  const double one = 6e-3 * static_cast<double>(stages.size());
  const PipelinePlan free = plan_pipeline(graph, stages, layouts, seconds, nullptr, shape);
  const double longest = *std::max_element(free.seconds.begin(), free.seconds.end());
  // 4 micro-batches in each of 2 replicas; without a pipeline each rank has 2 shards.
  EXPECT_NEAR(free.pipeline.seconds, one + 3 * longest, 1e-12);
  EXPECT_NEAR(free.data_parallel.seconds, 2 * one, 1e-12);
  EXPECT_THAT(estimate_text(free, shape), HasSubstr("data parallel would be faster if sending takes no time"));
  // All 4 ranks send 2 x 3/4 of the gradient, or 2 replicas that of each part.
  const auto bytes = static_cast<double>(graph.flat_elements()) * 4;
  EXPECT_DOUBLE_EQ(free.data_parallel.gradient_bytes, 6 * bytes);
  EXPECT_DOUBLE_EQ(free.pipeline.gradient_bytes, 2 * bytes);
  // On a link so slow that only bytes count, the pipeline sends fewer of them on one replica.
  shape.ranks = 2;
  const LinkSpeed slow{1e-3, 1e5};
  const PipelinePlan sent = plan_pipeline(graph, stages, layouts, seconds, &slow, shape);
  EXPECT_EQ(sent.pipeline.gradient_bytes, 0);
  EXPECT_LT(sent.pipeline.activation_bytes, sent.data_parallel.gradient_bytes);
  EXPECT_THAT(estimate_text(sent, shape), HasSubstr("the pipeline is faster"));
  try {
    shape.stages = 5;
    (void)plan_pipeline(graph, stages, layouts, seconds, nullptr, shape);
    FAIL() << "LeNet in 5 stages";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("can be cut into 4 stages at most"));
  }
}

}  // namespace
}  // namespace ddp::pipeline_tests
