// Edge cases of the arithmetic shared by CPU and GPU.
#include "backend/arithmetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ddp {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

TEST(Arithmetic, ReluPassesWhatIsNoNumber) {
  EXPECT_EQ(relu(2.5F), 2.5F);
  EXPECT_EQ(relu(-2.5F), 0.0F);
  EXPECT_EQ(relu(-kInfinity), 0.0F);
  EXPECT_TRUE(std::isnan(relu(kNan)));
  EXPECT_EQ(relu_gradient(0.0F, 3.0F), 0.0F);
  EXPECT_EQ(relu_gradient(-1.0F, 3.0F), 0.0F);
  EXPECT_EQ(relu_gradient(1e-30F, 3.0F), 3.0F);
  EXPECT_EQ(relu_gradient(kNan, 3.0F), 3.0F);
  EXPECT_TRUE(std::isnan(relu_gradient(1.0F, kNan)));
}

TEST(Arithmetic, MaximumStartsBelowAllNumbers) {
  EXPECT_EQ(larger(below_all(), std::numeric_limits<float>::lowest()), std::numeric_limits<float>::lowest());
  EXPECT_EQ(larger(1.0F, 2.0F), 2.0F);
  EXPECT_EQ(larger(2.0F, 1.0F), 2.0F);
  EXPECT_EQ(larger(1.0F, kNan), 1.0F);
}

TEST(Arithmetic, BrokenIsWhatIsNoFiniteNumber) {
  for (const float fine :
       {0.0F, -0.0F, 1e-45F, std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest()}) {
    EXPECT_FALSE(is_broken(fine)) << fine;
    EXPECT_FALSE(is_broken(static_cast<double>(fine))) << fine;
  }
  for (const float broken : {kInfinity, -kInfinity, kNan}) {
    EXPECT_TRUE(is_broken(broken)) << broken;
    EXPECT_TRUE(is_broken(static_cast<double>(broken))) << broken;
  }
  EXPECT_FALSE(is_broken(1e300));
}

TEST(Arithmetic, BytesBecomeNumbers) {
  EXPECT_EQ(pixel_value(0, 0.5F, -1.0F), -1.0F);
  EXPECT_EQ(pixel_value(255, 0.5F, -1.0F), 126.5F);
  EXPECT_EQ(average_of_four(1, 2, 3, 6), 3.0F);
}

// With two classes and logits 0 and ln 3, the probabilities are 1/4 and 3/4.
TEST(Arithmetic, CrossEntropyOfTwoClasses) {
  const float second = std::log(3.0F);
  const float log_sum = std::log(4.0F);
  EXPECT_NEAR(cross_entropy(log_sum, 0, second, 2, 0), std::log(4.0F), 1e-6F);
  EXPECT_NEAR(cross_entropy(log_sum, second, second, 2, 0), std::log(4.0F / 3), 1e-6F);
  // With label smoothing of 0.2, the targets are 0.9 and 0.1.
  EXPECT_NEAR(cross_entropy(log_sum, second, second, 2, 0.2F), 0.9F * std::log(4.0F / 3) + 0.1F * std::log(4.0F),
              1e-6F);
  EXPECT_NEAR(cross_entropy_gradient(0, log_sum, false, 2, 0), 0.25F, 1e-6F);
  EXPECT_NEAR(cross_entropy_gradient(second, log_sum, true, 2, 0), -0.25F, 1e-6F);
  EXPECT_NEAR(cross_entropy_gradient(second, log_sum, true, 2, 0.2F), 0.75F - 0.9F, 1e-6F);
}

}  // namespace
}  // namespace ddp
