#include "backend/argument_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "backend/op.h"

namespace ddp {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

template <class T>
std::vector<T> all_of(const ArgumentList<T>& list) {
  return {list.begin(), list.end()};
}

TEST(ArgumentList, HoldsAFewByValue) {
  float weight = 0;
  float bias = 0;
  ArgumentList<const float*> list;
  {
    const std::vector<const float*> few = {&weight, &bias};
    list = ArgumentList<const float*>(std::span<const float* const>(few));
  }
  EXPECT_THAT(all_of(list), ElementsAre(&weight, &bias));
  EXPECT_EQ(list[2], nullptr);
  EXPECT_THAT(all_of(ArgumentList<const float*>{&bias, &weight}), ElementsAre(&bias, &weight));
}

TEST(ArgumentList, RefersToAnyNumber) {
  std::vector<float> values(40);
  std::vector<const float*> many;
  for (const float& value : values) many.push_back(&value);
  const ArgumentList<const float*> list{std::span<const float* const>(many)};
  EXPECT_EQ(list.begin(), many.data());
  EXPECT_THAT(all_of(list), ElementsAreArray(many));
  EXPECT_EQ(list[40], nullptr);
  EXPECT_THAT(all_of(list.from(30)), ElementsAreArray(many.begin() + 30, many.end()));
  EXPECT_THAT(all_of(list.from(38)), ElementsAre(many[38], many[39]));
  EXPECT_EQ(list.from(41).size(), 0U);
}

TEST(OpSpecs, JoinedOperatorsHaveTheInputsOfTheFirstAndTheLast) {
  const ConvSpec conv{.batch = 4, .input = {3, 6, 6}, .output_channels = 8, .window = square(1), .bias = false};
  const std::vector<OpSpec> specs = {conv, BatchNormSpec{.batch = 4, .shape = {8, 6, 6}, .add = true}};
  EXPECT_THAT(input_shapes(specs), ElementsAre(Shape{3, 6, 6}, Shape{8, 6, 6}));
  EXPECT_THAT(parameter_sizes(specs), ElementsAre(24, 8, 8));
  const OpSpec concat = ConcatSpec{.batch = 4, .input = {3, 6, 6}, .second_channels = 5};
  EXPECT_THAT(input_shapes({&concat, 1}), ElementsAre(Shape{3, 6, 6}, Shape{5, 6, 6}));
}

}  // namespace
}  // namespace ddp
