#include "sweep/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "base/file.h"
#include "support/errors.h"
#include "support/temporary_folder.h"

namespace ddp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> texts(const SweepOptions& options, std::uint64_t seed = 1) {
  std::vector<std::string> result;
  for (const Setting& setting : expand_sweep(options, seed)) result.push_back(text_of(setting));
  return result;
}

std::string usage(const SweepOptions& options) {
  return error_text(ExitCode::usage, [&] { (void)expand_sweep(options, 1); });
}

TEST(SweepSettings, AGridVariesTheLastAxisFastest) {
  EXPECT_THAT(
      texts({.axes = {"lr=0.1,0.3", "optimizer=sgd,adamw"}}),
      ElementsAre("lr=0.1 optimizer=sgd", "lr=0.1 optimizer=adamw", "lr=0.3 optimizer=sgd", "lr=0.3 optimizer=adamw"));
}

TEST(SweepSettings, DrawsLieInTheirRangesAndRepeatWithTheSeed) {
  const SweepOptions options{.axes = {"lr=log:1e-4..1", "momentum=0.5..0.9", "optimizer=sgd,adam"}, .draws = 400};
  int below = 0;
  std::set<std::string> optimizers;
  for (const Setting& setting : expand_sweep(options, 7)) {
    const double lr = std::stod(setting[0].value);
    EXPECT_GE(lr, 1e-4);
    EXPECT_LE(lr, 1);
    if (lr < 1e-2) ++below;
    EXPECT_GE(std::stod(setting[1].value), 0.5);
    EXPECT_LE(std::stod(setting[1].value), 0.9);
    optimizers.insert(setting[2].value);
  }
  // Half of the logarithmic range: 200 expected, with a standard deviation of 10.
  EXPECT_NEAR(below, 200, 60);
  EXPECT_THAT(optimizers, ElementsAre("adam", "sgd"));
  EXPECT_EQ(texts(options, 7), texts(options, 7));
  EXPECT_NE(texts(options, 7), texts(options, 8));
}

TEST(SweepSettings, MoreDrawsKeepTheEarlierOnes) {
  const std::vector<std::string> few = texts({.axes = {"lr=0.1..1"}, .draws = 5});
  const std::vector<std::string> many = texts({.axes = {"lr=0.1..1"}, .draws = 9});
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
}

TEST(SweepSettings, AFileListsSettings) {
  TemporaryFolder folder;
  const auto file = folder.path() / "settings";
  replace_file(file, "# comment\nlr=0.1 momentum=0.9\n\nlr=0.2  # another\n", ExitCode::internal);
  EXPECT_THAT(texts({.list = file.string()}), ElementsAre("lr=0.1 momentum=0.9", "lr=0.2"));
  replace_file(file, "lr\n", ExitCode::internal);
  EXPECT_THAT(usage({.list = file.string()}), HasSubstr("settings:1: 'lr' is not of the form KEY=VALUE"));
  replace_file(file, "# nothing\n", ExitCode::internal);
  EXPECT_THAT(usage({.list = file.string()}), HasSubstr("contains no settings"));
}

TEST(SweepSettings, BadSweepsAreRejected) {
  EXPECT_THAT(usage({}), HasSubstr("sweep requires --sweep"));
  EXPECT_THAT(usage({.axes = {"lr"}}), HasSubstr("expected KEY=V1,V2"));
  EXPECT_THAT(usage({.axes = {"lr="}}), HasSubstr("has no values"));
  EXPECT_THAT(usage({.axes = {"lr=0.1,,0.2"}}), HasSubstr("has an empty value"));
  EXPECT_THAT(usage({.axes = {"lr=0.1", "lr=0.2"}}), HasSubstr("lr is given twice"));
  EXPECT_THAT(usage({.axes = {"lr=0.1,0.1"}}), HasSubstr("occurs twice"));
  EXPECT_THAT(usage({.axes = {"lr=0.1..1"}}), HasSubstr("requires --sweep-draws"));
  EXPECT_THAT(usage({.axes = {"lr=1..0.1"}, .draws = 3}), HasSubstr("1 is not less than 0.1"));
  EXPECT_THAT(usage({.axes = {"lr=log:0..1"}, .draws = 3}), HasSubstr("positive bounds"));
  EXPECT_THAT(usage({.axes = {"lr=a..b"}, .draws = 3}), HasSubstr("'a' is"));
  EXPECT_THAT(usage({.axes = {"a=1,2,3", "b=1,2,3"}, .max_trials = 8}), HasSubstr("9 combinations"));
  EXPECT_THAT(usage({.axes = {"a=1"}, .list = "file"}), HasSubstr("alternatives"));
  EXPECT_THAT(usage({.list = "file", .draws = 3}), HasSubstr("--sweep-draws draws from --sweep"));
}

}  // namespace
}  // namespace ddp
