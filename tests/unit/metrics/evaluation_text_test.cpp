#include "metrics/display/evaluation_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace ddp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(EvaluationTextTest, NamesClassesAndWhatTheyAreTakenFor) {
  const EvalRecord found{
      7, 1, 0.31, 2.0 / 3, std::nullopt, {0.95, 0.1, std::nan("")}, {{19, 1, 0}, {3, 1, 6}, {0, 0, 0}}};
  const std::string text = evaluation_text(found, {20, 10, 0}, {"cat", "Katze ü", "bird"});
  EXPECT_THAT(text, HasSubstr("images      30 of 3 classes\n"));
  EXPECT_THAT(text, HasSubstr("accuracy    66.67 % (top 1)\n"));
  EXPECT_THAT(text, HasSubstr("cat          20   95.00 %  Katze ü (1)\n"));
  EXPECT_THAT(text, HasSubstr("Katze ü      10   10.00 %  bird (6), cat (3)\n"));
  // Without images there is no accuracy.
  EXPECT_THAT(text, HasSubstr("bird          0         –\n"));
  EXPECT_THAT(text, HasSubstr("class \\ answer  cat  Katze ü  bird\ncat"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(EvaluationTextTest, OfManyClassesTheWorstAreListed) {
  EvalRecord found{7, 1, 0.31, 0.5, 0.9, {}, {}};
  std::vector<std::int64_t> samples(1000, 50);
  for (int c = 0; c < 1000; ++c) found.class_accuracy.push_back(c == 777 ? 0 : 0.5);
  const std::string text = evaluation_text(found, samples, {});
  EXPECT_THAT(text, HasSubstr("top 5       90.00 %"));
  EXPECT_THAT(text,
              HasSubstr("the 30 worst classes; --json lists all\nclass  images  accuracy\n777        50    0.00 %\n"));
  EXPECT_LT(text.size(), 2000U);
}

}  // namespace
}  // namespace ddp
