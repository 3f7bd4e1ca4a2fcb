// The values that a run is built from, each without those that are made from it later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/transport/self.h"
#include "comm/transport/threads.h"
#include "support/errors.h"
#include "train/inputs/inputs.h"
#include "train/inputs/job.h"
#include "train/loop/engine.h"
#include "train/loop/state.h"
#include "train/parallel/parallelism.h"
#include "train/plan/measured.h"
#include "train/plan/plan.h"

namespace ddp {
namespace {

using ::testing::HasSubstr;

Options options_of(const std::string& model) {
  Options options;
  options.command = "train";
  options.model.model = model;
  options.data.dataset = "glyphs";
  options.data.train_limit = 100;
  options.data.test_limit = 20;
  options.batch.global_batch = 16;
  options.optimizer.deterministic = true;
  return options;
}

// As agree_on_job() does, without a session.
Job job_of(Communicator& ranks, const Options& options) {
  return {.ranks = ranks, .options = options, .batch = options.batch};
}

// What the rules choose, without timing anything.
Measured by_rule(const Inputs& inputs, Backend& backend) {
  const std::vector<Stage> stages = stages_of(inputs.graph, inputs.batch, backend);
  return {.kernels = {to_text(plan_layouts(backend, stages, ChoiceMode::expected)), "by fixed rules"}};
}

// The times of a pipeline whose stages are equally fast.
Measured with_stages(Measured measured, std::size_t stages) {
  measured.link = LinkSpeed{1e-5, 1e9};
  measured.stages = {std::vector<double>(stages, 1e-3), std::vector<double>(stages, 2e-3),
                     std::vector<bool>(stages, false)};
  return measured;
}

class Values : public ::testing::Test {
 protected:
  Values() { omp_set_num_threads(1); }
  Inputs inputs(const Job& job) {
    std::optional<ImportedModel> imported;
    return make_inputs(job, "", {}, imported);
  }
  std::unique_ptr<Communicator> ranks_ = make_self_communicator();
  Communicator& self_ = *ranks_;
};

TEST_F(Values, AJobKnowsWhoDoesWhatWithoutData) {
  Options options = options_of("lenet");
  options.distributed.pipeline = 2;
  run_as_threads(4, [&](Communicator& ranks) {
    const Job job = job_of(ranks, options);
    EXPECT_EQ(place_of(job).stages, 2);
    EXPECT_EQ(place_of(job).replica, ranks.rank() / 2);
  });
  // Three stages cannot divide one rank, and other commands show the whole network.
  options.distributed.pipeline = 3;
  EXPECT_THAT(error_text(ExitCode::usage, [&] { (void)place_of(job_of(self_, options)); }), HasSubstr("--pipeline 3"));
  options.command = "eval";
  EXPECT_EQ(place_of(job_of(self_, options)).stages, 1);
}

TEST_F(Values, InputsAreMadeOfAJobWithoutADevice) {
  const Options options = options_of("lenet");
  const Inputs made = inputs(job_of(self_, options));
  EXPECT_EQ(made.train().size(), 100);
  EXPECT_EQ(made.batch.steps_per_epoch, 7);
  EXPECT_EQ(made.graph.classes(), made.train().classes());
  EXPECT_EQ(made.pixels.scale.size(), 1U);
  // The resumed run of a checkpoint of other images is refused before a device is opened.
  Job resumed = job_of(self_, options);
  resumed.start.resumed.emplace();
  TrainingState& state = *resumed.start.resumed;
  state.model = options.model.model;
  state.dataset = options.data.dataset;
  state.seed = options.optimizer.seed;
  state.global_batch = 16;
  state.logical_shards = 1;
  for (const FingerprintPart& part : made.fingerprint) state.fingerprint[part.name] = part.value;
  EXPECT_NO_THROW((void)inputs(resumed));
  state.fingerprint["training labels"] = "others";
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { (void)inputs(resumed); }), HasSubstr("training labels"));
}

// The order in which faults are found: options, then data, then the network.
TEST_F(Values, InputsReportTheFirstOfSeveralFaults) {
  Options options = options_of("lenet");
  options.data.dataset = "mnist";
  options.data.data_dir = "/nowhere";
  options.model.sync_batch_norm = true;
  EXPECT_THAT(error_text(ExitCode::data, [&] { (void)inputs(job_of(self_, options)); }), HasSubstr("/nowhere"));
  options.distributed.gradient_precision = GradientPrecision::bf16;
  EXPECT_THAT(error_text(ExitCode::usage, [&] { (void)inputs(job_of(self_, options)); }),
              HasSubstr("--gradient-precision"));
}

TEST_F(Values, APlanIsMadeOfMeasurementsWithoutAState) {
  const Job job = job_of(self_, options_of("lenet"));
  const Inputs made = inputs(job);
  const auto backend = make_cpu_backend();
  const Plan plan = make_plan(job, made, *backend, by_rule(made, *backend));
  EXPECT_EQ(plan.kernels.layouts.stages.size(), plan.stages.size());
  EXPECT_EQ(plan.config.batch, made.batch.per_shard);
  EXPECT_GT(plan.state_bytes, static_cast<std::size_t>(made.graph.flat_elements()) * sizeof(float));
  const Parallelism& alone = plan.parallelism;
  EXPECT_FALSE(alone.pipelined() || alone.slices.any() || alone.shares_state);
  EXPECT_EQ(alone.held.size(), made.graph.flat_elements());
}

// One value says what each rank has to do, whatever the options divide.
TEST_F(Values, ParallelismDividesAStepOnce) {
  Options options = options_of("lenet");
  const Graph graph = inputs(job_of(self_, options)).graph;
  Device device;
  device.views.resize(2);
  const Parallelism shared = divide_step(options, device, graph, pipeline_place(1, 2, 1), {});
  EXPECT_TRUE(shared.shares_state);
  EXPECT_FALSE(divide_step(options, {}, graph, pipeline_place(1, 2, 1), {}).shares_state) << "hosts are not known";
  EXPECT_FALSE(divide_step(options, device, graph, pipeline_place(1, 1, 0), {}).shares_state) << "one rank";
  options.optimizer.optimizer = UpdateRule::lamb;
  EXPECT_FALSE(divide_step(options, device, graph, pipeline_place(1, 2, 1), {}).shares_state) << "needs whole layers";

  Graph divided = graph;
  const std::vector<int> layers = layers_to_split(graph, "fc*", 2);
  for (const int layer : layers) divided.split_linear(layer, 2);
  EXPECT_EQ(divided_layers(divided), layers);
  options = options_of("lenet");
  const Parallelism sliced = divide_step(options, device, divided, pipeline_place(1, 2, 1), {});
  EXPECT_TRUE(sliced.slices.any() && !sliced.shares_state);

  const std::int64_t all = graph.flat_elements();
  const Parallelism piped = divide_step(options, device, graph, pipeline_place(2, 2, 1), {{0, 500}, {500, all}});
  EXPECT_TRUE(piped.pipelined() && !piped.shares_state);
  EXPECT_EQ(piped.held.begin, 500);
  const std::vector<Parameter>& parameters = graph.parameters();
  const auto held = std::count_if(parameters.begin(), parameters.end(), [&](auto& p) { return piped.holds(p); });
  EXPECT_TRUE(held > 0 && held < std::ssize(parameters));
}

TEST_F(Values, ThePlanOfAPipelineNeedsNoCommunication) {
  Options options = options_of("lenet");
  options.distributed.pipeline = 2;
  run_as_threads(2, [&](Communicator& ranks) {
    omp_set_num_threads(1);
    const Job job = job_of(ranks, options);
    std::optional<ImportedModel> imported;
    const Inputs made = make_inputs(job, "", {}, imported);
    const auto backend = make_cpu_backend();
    const std::size_t stages = stages_of(made.graph, made.batch, *backend).size();
    const Plan plan = make_plan(job, made, *backend, with_stages(by_rule(made, *backend), stages));
    EXPECT_EQ(plan.parallelism.parts.size(), 2U);
    EXPECT_EQ(plan.own_stages().begin == 0, ranks.rank() == 0);
    EXPECT_EQ(plan.own_stages().end == static_cast<std::int64_t>(stages), ranks.rank() == 1);
  });
}

TEST_F(Values, AStateIsMadeWithoutAnEngine) {
  const Job job = job_of(self_, options_of("mnist-slim"));
  const Inputs made = inputs(job);
  const auto backend = make_cpu_backend();
  const Plan plan = make_plan(job, made, *backend, by_rule(made, *backend));
  const State first = first_state(job, made, plan, *backend, std::nullopt);
  const State second = first_state(job, made, plan, *backend, std::nullopt);
  const std::span<const float> weights = first.host_parameters->values();
  EXPECT_TRUE(std::equal(weights.begin(), weights.end(), second.host_parameters->values().begin()));
  EXPECT_TRUE(std::any_of(weights.begin(), weights.end(), [](float w) { return w != 0; }));
  EXPECT_EQ(std::ssize(first.statistics->mean_values()), made.graph.statistic_count());
  EXPECT_EQ(first.batch.shards, made.batch.shards);
}

}  // namespace
}  // namespace ddp
