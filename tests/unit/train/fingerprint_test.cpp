#include "train/inputs/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "comm/transport/threads.h"
#include "job/joint_error.h"
#include "options/parse.h"
#include "support/errors.h"
#include "train/inputs/inputs.h"
#include "train/inputs/resume.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Fingerprint, DifferencesNameThePartsOfBothSides) {
  const Fingerprint a = {{"--lr", "0.1"}, {"seed", "1"}, {"only here", "x"}};
  const Fingerprint b = {{"--lr", "0.2"}, {"seed", "1"}, {"only there", "y"}};
  EXPECT_EQ(differences(a, b), "--lr 0.1 instead of 0.2, only here x instead of none, only there none instead of y");
  EXPECT_EQ(differences(a, a), "");
  EXPECT_THAT(differences({}, {{"1", "1"}, {"2", "2"}, {"3", "3"}, {"4", "4"}, {"5", "5"}}), HasSubstr("and 2 more"));
}

// All ranks fail with the same message and code; only rank 0 reports it, so the rank that differs is named once.
TEST(Fingerprint, ARankThatDiffersIsNamedOnAllRanks) {
  for (const int odd : {1, 2}) {
    std::vector<int> reported(3, 0);
    run_as_threads(3, [&](Communicator& ranks) {
      check_same_on_all_ranks(ranks, {{"--lr", "0.1"}, {"a\nb", "c\td"}}, ExitCode::preflight, "start them alike");
      try {
        check_same_on_all_ranks(ranks, {{"--lr", ranks.rank() == odd ? "0.2" : "0.1"}}, ExitCode::preflight,
                                "start them alike");
        ADD_FAILURE() << "nothing is noticed on rank " << ranks.rank();
      } catch (const JointError& error) {
        EXPECT_EQ(error.code(), ExitCode::preflight);
        EXPECT_THAT(error.what(), AllOf(HasSubstr("rank " + std::to_string(odd) + " on host"),
                                        HasSubstr("--lr 0.2 instead of 0.1"), HasSubstr("start them alike")));
        reported[static_cast<std::size_t>(ranks.rank())] += error.reporter() ? 1 : 0;
      }
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(reported[static_cast<std::size_t>(rank)], rank == 0 ? 1 : 0);
  }
}

TEST(Fingerprint, TensorsAreToldApartByNameShapeAndEveryBit) {
  std::vector<float> values = {1, 2, 3, 4};
  const auto part = [&](const std::string& name, std::vector<std::int64_t> shape) {
    const TensorView view{name, std::move(shape), values.data()};
    return tensors_part("weights", std::span(&view, 1)).value;
  };
  const std::string first = part("w", {2, 2});
  EXPECT_EQ(part("w", {2, 2}), first);
  EXPECT_NE(part("v", {2, 2}), first);
  EXPECT_NE(part("w", {4}), first);
  values[3] = std::nextafter(values[3], 5.0F);
  EXPECT_NE(part("w", {2, 2}), first);
}

TEST(Fingerprint, TheFirstTensorThatIsNotFiniteIsNamed) {
  std::vector<float> values = {1, 2, 3, std::numeric_limits<float>::max()};
  const std::vector<TensorView> views = {{"a", {2}, values.data()}, {"b", {2}, values.data() + 2}};
  EXPECT_EQ(first_not_finite(views), "");
  values[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(first_not_finite(views), "b");
  values[1] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(first_not_finite(views), "a");
}

TEST(Fingerprint, AnyValueThatIsNotFiniteIsFound) {
  std::mt19937 generator(std::random_device{}());
  std::vector<float> values(50'000);
  for (float& value : values) {
    do {
      value = std::bit_cast<float>(static_cast<std::uint32_t>(generator()));
    } while (!std::isfinite(value));
  }
  const std::vector<TensorView> views = {{"a", {50'000}, values.data()}};
  EXPECT_EQ(first_not_finite(views), "");
  for (int round = 0; round < 50; ++round) {
    float& value = values[generator() % values.size()];
    const float before = value;
    value = std::bit_cast<float>(0x7F800000U | static_cast<std::uint32_t>(generator()));
    EXPECT_EQ(first_not_finite(views), "a") << value;
    value = before;
  }
}

TEST(Fingerprint, PlansAndTheArithmeticOfTheirKernelsAreParts) {
  EXPECT_NE(plan_part("conv1 nhwc"), plan_part("conv1 lanes16"));
  EXPECT_EQ(plan_part("conv1 nhwc"), plan_part("conv1 nhwc"));
  const std::unique_ptr<Backend> cpu = make_cpu_backend();
  EXPECT_THAT(kernels_part(*cpu).value, HasSubstr("oneDNN "));
  // The number of threads does not change the results.
  omp_set_num_threads(2);
  const FingerprintPart two = kernels_part(*cpu);
  omp_set_num_threads(1);
  EXPECT_EQ(kernels_part(*cpu), two);
}

TEST(Fingerprint, OptionsOfPlacesAreNotCompared) {
  Options a;
  Options b = a;
  b.data.data_dir = "/elsewhere";
  b.distributed.threads = 3;
  b.output.output = "/run";
  EXPECT_EQ(differences(options_fingerprint(a), options_fingerprint(b)), "");
  b.optimizer.lr = 0.25;
  b.data.train_limit = 7;
  const std::string text = differences(options_fingerprint(a), options_fingerprint(b));
  EXPECT_THAT(text, AllOf(HasSubstr("--lr 0.1 instead of 0.25"), HasSubstr("--train-limit 0 instead of 7")));
  // In the form stored in checkpoints.
  EXPECT_EQ(differences(options_fingerprint(dump_config(a)), options_fingerprint(dump_config(b))), text);
}

Inputs inputs_of(std::int64_t train_limit, bool affine) {
  Inputs inputs;
  inputs.images.sets = open_dataset("glyphs", "", train_limit, 20, 1);
  inputs.graph = Graph({1, 28, 28});
  int x = inputs.graph.input();
  if (affine) x = inputs.graph.affine("scale", x, {"/scale.weight", {1}, true}, nullptr);
  inputs.graph.linear("fc", inputs.graph.flatten(x), 10);
  inputs.batch.steps_per_epoch = train_limit / 10;
  inputs.fingerprint = data_fingerprint(inputs.images.sets, {{0.5F}, {0.25F}});
  inputs.fingerprint.push_back(network_part(inputs.graph));
  return inputs;
}

TrainingState state_of(const Inputs& inputs) {
  TrainingState state;
  for (const FingerprintPart& part : inputs.fingerprint) state.fingerprint[part.name] = part.value;
  return state;
}

TEST(Fingerprint, ResumingOnOtherDataOrLayersIsRefused) {
  const Inputs first = inputs_of(100, false);
  EXPECT_NO_THROW(check_same_data({}, first, state_of(inputs_of(100, false))));
  const auto refusal = [&](const Inputs& then) {
    return error_text(ExitCode::checkpoint, [&] { check_same_data({}, first, state_of(then)); });
  };
  EXPECT_THAT(refusal(inputs_of(90, false)),
              AllOf(HasSubstr("training images 100 of 1x28x28 in 10 classes instead of 90 of"),
                    HasSubstr("training labels"), HasSubstr("--resume none")));
  EXPECT_THAT(refusal(inputs_of(100, true)), HasSubstr("network"));
  Inputs other = inputs_of(100, false);
  other.fingerprint = data_fingerprint(other.images.sets, {{0.5F}, {0.5F}});
  EXPECT_THAT(refusal(other), HasSubstr("normalisation (x - [0.5]) / [0.25] instead of (x - [0.5]) / [0.5]"));
}

// Checkpoints of older programs that did not record their data set.
TEST(Fingerprint, AnOldCheckpointMustFitTheNumberOfSteps) {
  const Inputs inputs = inputs_of(100, false);  // 10 steps per epoch
  TrainingState state;
  state.step = 23;
  state.epoch = 2;
  state.step_in_epoch = 3;
  EXPECT_NO_THROW(check_same_data({}, inputs, state));
  state.step_in_epoch = 11;
  state.step = 31;
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { check_same_data({}, inputs, state); }),
              HasSubstr("10 steps per epoch"));
  // Older programs read these weights differently.
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { check_same_data({}, inputs_of(100, true), TrainingState{}); }),
              HasSubstr("older ddp_train"));
}

}  // namespace
}  // namespace ddp
