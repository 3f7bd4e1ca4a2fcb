#include "train/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "comm/threads.h"
#include "runtime/joint_error.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Fingerprint, DifferencesNameThePartsOfBothSides) {
  const Fingerprint a = {{"--lr", "0.1"}, {"seed", "1"}, {"only here", "x"}};
  const Fingerprint b = {{"--lr", "0.2"}, {"seed", "1"}, {"only there", "y"}};
  EXPECT_EQ(differences(a, b), "--lr 0.1 in place of 0.2, only here x in place of none, only there none in place of y");
  EXPECT_EQ(differences(a, a), "");
  EXPECT_THAT(differences({}, {{"1", "1"}, {"2", "2"}, {"3", "3"}, {"4", "4"}, {"5", "5"}}), HasSubstr("and 2 more"));
}

// All ranks end with the same line and code, and one of them reports it.
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
                                        HasSubstr("--lr 0.2 in place of 0.1"), HasSubstr("start them alike")));
        reported[static_cast<std::size_t>(ranks.rank())] += error.reporter() ? 1 : 0;
      }
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(reported[static_cast<std::size_t>(rank)], rank == odd ? 1 : 0);
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

}  // namespace
}  // namespace ddp
