#include "train/inputs/match_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/errors.h"
#include "train/inputs/init_from.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kNames = {"conv1.weight", "layer1.0.conv1.weight", "layer1.0.bn.running_mean",
                                         "fc.weight"};

std::vector<FileTensor> in_file(const std::vector<std::string>& names) {
  std::vector<FileTensor> tensors;
  for (const std::string& name : names) tensors.push_back({name, {2, 3}});
  return tensors;
}

std::vector<FileTensor> prefixed(const std::string& prefix, const std::vector<std::string>& names = kNames) {
  std::vector<FileTensor> tensors = in_file(names);
  for (FileTensor& tensor : tensors) tensor.name = prefix + tensor.name;
  return tensors;
}

std::vector<NetworkTensor> in_network(const std::string& prefix = "") {
  std::vector<NetworkTensor> tensors;
  for (const std::string& name : kNames) tensors.push_back({prefix + name, {2, 3}, name == "fc.weight"});
  return tensors;
}

WeightMatch matched(const std::vector<FileTensor>& file, const std::vector<NetworkTensor>& network = in_network()) {
  return match_weights(file, network, {});
}

std::string refusal(const std::vector<FileTensor>& file, const std::vector<NetworkTensor>& network = in_network()) {
  return error_text(ExitCode::checkpoint, [&] { (void)matched(file, network); });
}

TEST(MatchWeights, OnePrefixOfEitherSideIsLeftOut) {
  for (const std::string prefix : {"module.", "_orig_mod.", "model.", "net.", "net.model.", "_orig_mod.module.",
                                   "a.b.c.d.", "state_dict/", "model:0/", "backbone|", "module.module."}) {
    const WeightMatch match = matched(prefixed(prefix));
    EXPECT_THAT(match.sources, ElementsAre(0, 1, 2, 3)) << prefix;
    EXPECT_EQ(match.note, "without '" + prefix + "'");
    EXPECT_THAT(matched(in_file(kNames), in_network(prefix)).sources, ElementsAre(0, 1, 2, 3)) << prefix;
    EXPECT_THAT(matched(prefixed("other."), in_network(prefix)).sources, ElementsAre(0, 1, 2, 3)) << prefix;
    EXPECT_EQ(matched(prefixed(prefix), in_network(prefix)).note, "");
  }
  EXPECT_EQ(matched(in_file(kNames)).note, "");
}

TEST(MatchWeights, OrderAndCountersDoNotMatter) {
  std::vector<FileTensor> file = prefixed("module.", {"fc.weight", "layer1.0.bn.running_mean", "conv1.weight",
                                                      "layer1.0.bn.num_batches_tracked", "layer1.0.conv1.weight"});
  file[3].shape = {};
  file[3].real = false;
  EXPECT_THAT(matched(file).sources, ElementsAre(2, 4, 1, 0));
}

// torch.compile, DataParallel and FSDP around parts of a module.
TEST(MatchWeights, WrappersInTheMiddleAreLeftOut) {
  const std::vector<std::string> names = {"module.conv1.weight", "module.layer1._orig_mod.0.conv1.weight",
                                          "module.layer1._orig_mod.0.bn.running_mean",
                                          "module._fsdp_wrapped_module.fc.weight"};
  EXPECT_THAT(matched(in_file(names)).sources, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(matched(in_file(names)).note, "without the names of wrappers");
  std::vector<std::string> deeper;
  for (const std::string& name : names) deeper.push_back("net." + name);
  EXPECT_THAT(matched(in_file(deeper)).sources, ElementsAre(0, 1, 2, 3));
}

// {'model': ..., 'optimizer': ...}, flattened: the others are passed over, and said.
TEST(MatchWeights, TensorsWithAnotherPrefixArePassedOver) {
  std::vector<FileTensor> file = prefixed("model.");
  file.push_back({"optimizer.state.0.exp_avg", {2, 3}});
  file.push_back({"epoch", {}, "I64", false});
  const WeightMatch match = matched(file);
  EXPECT_THAT(match.sources, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(match.note, "without 'model.'; 2 tensors passed over, whose names begin otherwise");
}

TEST(MatchWeights, WeightsThatAreThereTwiceAreRefused) {
  std::vector<FileTensor> file = prefixed("model.");
  for (const FileTensor& tensor : prefixed("ema.")) file.push_back(tensor);
  EXPECT_THAT(refusal(file), AllOf(HasSubstr("more than once, with 'ema.' and with 'model.' before their names"),
                                   HasSubstr("keep one of them")));
  // Names that agree as they are come first.
  std::vector<FileTensor> plain = in_file(kNames);
  for (const FileTensor& tensor : prefixed("ema.")) plain.push_back(tensor);
  EXPECT_THAT(refusal(plain), HasSubstr("tensor 'ema.conv1.weight' of the file is not in this model"));
}

TEST(MatchWeights, FirstNamesOfBothSidesAreQuoted) {
  const std::string none = refusal(in_file({"features.0.weight", "features.0.bias", "features.3.weight", "x", "y"}));
  EXPECT_THAT(none,
              AllOf(HasSubstr("no name in the file is one of this model"),
                    HasSubstr("the file has 'features.0.weight', 'features.0.bias', 'features.3.weight' and 2 more"),
                    HasSubstr("this model 'conv1.weight', 'layer1.0.conv1.weight'")));
  EXPECT_THAT(none, Not(HasSubstr("--new-classifier")));
  const std::string some = refusal(prefixed("module.", {"conv1.weight", "fc.weight"}));
  EXPECT_THAT(some,
              HasSubstr("2 of the 4 tensors of this model are not in the file, the first is 'layer1.0.conv1.weight'"));
  EXPECT_THAT(some, Not(HasSubstr("--new-classifier")));
  std::vector<std::string> more = kNames;
  more.push_back("aux.weight");
  EXPECT_THAT(refusal(prefixed("module.", more)),
              HasSubstr("tensor 'module.aux.weight' of the file is not in this model"));
}

TEST(MatchWeights, NewClassifierIsSuggestedOnlyWhereItHelps) {
  std::vector<FileTensor> file = prefixed("module.");
  file[3].shape = {1000, 3};
  EXPECT_THAT(refusal(file), AllOf(HasSubstr("tensor 'module.fc.weight' has shape [1000, 3] in the file, [2, 3]"),
                                   HasSubstr("or --new-classifier")));
  file[0].shape = {9};
  EXPECT_THAT(refusal(file),
              AllOf(HasSubstr("'module.conv1.weight' has shape [9]"), Not(HasSubstr("--new-classifier"))));
  EXPECT_THAT(refusal(prefixed("module.", {kNames[0], kNames[1], kNames[2]})), HasSubstr("or --new-classifier"));
  std::vector<NetworkTensor> rest = in_network();
  rest.pop_back();
  EXPECT_THAT(match_weights(prefixed("module."), rest, {"fc.weight"}).sources, ElementsAre(0, 1, 2));
}

TEST(MatchWeights, OnlyTensorsThatAreTakenNeedRealNumbers) {
  std::vector<FileTensor> file = prefixed("model.");
  file.push_back({"step", {}, "I32", false});
  EXPECT_THAT(matched(file).sources, ElementsAre(0, 1, 2, 3));
  file[1].type = "F8_E4M3";
  file[1].real = false;
  EXPECT_THAT(refusal(file), HasSubstr("tensor 'model.layer1.0.conv1.weight' is of type F8_E4M3, only F32"));
}

TEST(TrainedOn, AnotherNormalizationOrOtherClassesAreSaid) {
  const auto said = [](const TrainedOn& then, const TrainedOn& now) {
    ::testing::internal::CaptureStderr();
    warn_of_other_inputs("--init-from w", then, now);
    return ::testing::internal::GetCapturedStderr();
  };
  const TrainedOn run = {{0.5}, {0.25}, {"cat", "dog"}};
  EXPECT_EQ(said(run, run), "");
  EXPECT_EQ(said({}, run), "");
  EXPECT_EQ(said({{0.5 + 1e-6}, {0.25}, {}}, run), "");
  EXPECT_EQ(said(run, {{0.5}, {0.25}, {}}), "");
  EXPECT_THAT(said({{0}, {1}, {}}, run),
              HasSubstr("mean 0 and standard deviation 1 taken off, this run takes off 0.5 and 0.25"));
  EXPECT_THAT(said({{0.5}, {0.25}, {"dog", "cat"}}, run), HasSubstr("class 0 is 'dog' there and 'cat' here"));
  EXPECT_THAT(said({{0.5}, {0.25}, {"cat"}}, run), HasSubstr("class 1 is missing there and 'dog' here"));
  const TrainedOn read = trained_on({{"mean", "[0.5]"}, {"std", "[0.25]"}, {"classes", R"(["cat","dog"])"}});
  EXPECT_EQ(said(read, run), "");
  EXPECT_EQ(said(trained_on({{"mean", "no list"}, {"std", "[\"a\"]"}, {"classes", "[1]"}}), run), "");
}

}  // namespace
}  // namespace ddp
