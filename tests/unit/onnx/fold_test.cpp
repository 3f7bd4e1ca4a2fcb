#include "onnx/patterns/fold.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/errors.h"

namespace ddp {
namespace {

using Integers = std::vector<std::int64_t>;

OnnxNode node_of(const std::string& type, std::map<std::string, OnnxAttribute, std::less<>> attributes = {}) {
  return {"n", type, {}, {"y"}, std::move(attributes)};
}

OnnxTensor list(const Integers& values) {
  return OnnxTensor::of_integers({static_cast<std::int64_t>(values.size())}, values);
}

TEST(Fold, TransposePermutesDimensions) {
  const OnnxTensor x = OnnxTensor::of_reals({2, 1, 3}, {1, 2, 3, 4, 5, 6});
  const OnnxTensor y = fold(node_of("Transpose", {{"perm", Integers{2, 0, 1}}}), {&x});
  EXPECT_EQ(y.shape, (Integers{3, 2, 1}));
  EXPECT_EQ(y.reals, (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

// The nodes with which PyTorch's older exporter reverses its order of paddings.
TEST(Fold, SliceGoesBackwardsToo) {
  const OnnxTensor x = OnnxTensor::of_integers({3, 2}, {1, 2, 3, 4, 5, 6});
  const OnnxTensor starts = list({-1});
  const OnnxTensor ends = list({std::numeric_limits<std::int64_t>::min() + 1});
  const OnnxTensor axes = list({0});
  const OnnxTensor steps = list({-1});
  const OnnxTensor y = fold(node_of("Slice"), {&x, &starts, &ends, &axes, &steps});
  EXPECT_EQ(y.shape, (Integers{3, 2}));
  EXPECT_EQ(y.integers, (Integers{5, 6, 3, 4, 1, 2}));
}

TEST(Fold, ArithmeticRepeatsExtentsOfOne) {
  const OnnxTensor a = OnnxTensor::of_integers({2, 1}, {1, 2});
  const OnnxTensor b = list({10, 20, 30});
  const OnnxTensor y = fold(node_of("Mul"), {&a, &b});
  EXPECT_EQ(y.shape, (Integers{2, 3}));
  EXPECT_EQ(y.integers, (Integers{10, 20, 30, 20, 40, 60}));
}

TEST(Fold, NumberOfSamplesIsMovedButNotComputedWith) {
  const OnnxTensor shape = list({kBatchExtent, 3, 4});
  const OnnxTensor index = list({0});
  EXPECT_EQ(fold(node_of("Gather"), {&shape, &index}).integers, (Integers{kBatchExtent}));
  const OnnxTensor two = list({2});
  EXPECT_NE(error_text(ExitCode::usage,
                       [&] {
                         fold(node_of("Mul"), {&shape, &two});
                       })
                .find("number of samples"),
            std::string::npos);
}

TEST(Fold, ImpossibleConstantsAreRefused) {
  const OnnxTensor huge = list({1 << 20, 1 << 20});
  const OnnxTensor one = OnnxTensor::of_reals({}, {1});
  const OnnxTensor zero = list({0});
  const OnnxTensor open = list({-1, -1});
  const OnnxTensor least = list({std::numeric_limits<std::int64_t>::min()});
  const OnnxTensor text{OnnxTensor::Type::other, "STRING", {1}, {}, {}};
  const auto refuses = [](const OnnxNode& node, const std::vector<const OnnxTensor*>& inputs) {
    return !error_text(ExitCode::usage, [&] { fold(node, inputs); }).empty();
  };
  EXPECT_TRUE(refuses(node_of("ConstantOfShape"), {&huge}));
  EXPECT_TRUE(refuses(node_of("Expand"), {&one, &huge}));
  EXPECT_TRUE(refuses(node_of("Div"), {&huge, &zero}));
  EXPECT_TRUE(refuses(node_of("Div"), {&least, &least}));
  EXPECT_TRUE(refuses(node_of("Gather"), {&huge, &huge}));
  EXPECT_TRUE(refuses(node_of("Identity"), {&text}));
  EXPECT_TRUE(refuses(node_of("Reshape"), {&huge, &open}));
  EXPECT_TRUE(refuses(node_of("Unsqueeze"), {&huge, &huge}));
  EXPECT_TRUE(refuses(node_of("Transpose", {{"perm", Integers{0, 1}}}), {&huge}));
  EXPECT_TRUE(refuses(node_of("Add"), {&one}));
}

}  // namespace
}  // namespace ddp
