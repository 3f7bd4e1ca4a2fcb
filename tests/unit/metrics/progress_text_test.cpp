#include "metrics/display/progress_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace ddp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TrainingProgress halfway() {
  return {
      .epoch = 3, .epochs = 10, .step = 1170, .steps = 2340, .loss = 0.43214, .lr = 0.1, .images_per_second = 12345};
}

TEST(ProgressBarTest, ShowsEverythingWhereThereIsRoom) {
  EXPECT_EQ(progress_bar(halfway(), 83, 120, false),
            "epoch  3/10 [####################--------------------]  50%  step 1,170/2,340  loss 0.4321  "
            "12,345 images/s  eta 1:23");
  EXPECT_EQ(progress_bar(halfway(), 8.4, 120, true),
            "epoch  3/10 ▕████████████████████                    ▏  50%  step 1,170/2,340  loss 0.4321  "
            "12,345 images/s  eta 8 s");
}

TEST(ProgressBarTest, FitsEveryWidth) {
  std::random_device random;
  for (int columns = 20; columns < 200; ++columns) {
    for (const bool utf8 : {false, true}) {
      TrainingProgress progress = halfway();
      progress.step = random() % 2341;
      const std::string bar = progress_bar(progress, 83, columns, utf8);
      EXPECT_LT(text_width(bar), columns) << bar;
      EXPECT_EQ(bar.find('\n'), std::string::npos);
      EXPECT_THAT(bar, HasSubstr("%"));
    }
  }
}

TEST(ProgressBarTest, LeastTellingPartsGiveWayFirst) {
  const std::string bar = progress_bar(halfway(), 83, 60, false);
  EXPECT_THAT(bar, HasSubstr("loss 0.4321"));
  EXPECT_THAT(bar, HasSubstr("eta 1:23"));
  EXPECT_THAT(bar, Not(HasSubstr("images/s")));
}

TEST(ProgressBarTest, GrowsWithEveryEighthOfACharacter) {
  TrainingProgress progress = halfway();
  progress.steps = 40 * 8;
  std::string before;
  for (progress.step = 0; progress.step <= progress.steps; ++progress.step) {
    const std::string line = progress_bar(progress, std::nullopt, 150, true);
    const std::string bar = line.substr(line.find("▕"), line.find('%') - 4 - line.find("▕"));
    EXPECT_NE(bar, before) << progress.step;
    EXPECT_EQ(text_width(bar), 42);
    before = bar;
  }
}

TEST(ProgressBarTest, OddNumbersDoNoHarm) {
  TrainingProgress odd;
  odd.loss = std::nan("");
  odd.images_per_second = INFINITY;
  EXPECT_THAT(progress_bar(odd, std::nullopt, 120, false), HasSubstr("  0%  step 0/0  loss nan  0 images/s  eta -"));
  odd = halfway();
  odd.step = odd.steps + 5;
  odd.loss = -3.4e38;
  odd.images_per_second = 1e300;
  EXPECT_THAT(progress_bar(odd, -1, 150, false), HasSubstr("100%"));
  EXPECT_THAT(progress_bar(odd, INFINITY, 150, false), HasSubstr("eta -"));
  EXPECT_THAT(progress_bar(odd, -1, 150, false), HasSubstr("eta 0 s"));
}

TEST(ProgressLineTest, IsAligned) {
  TrainingProgress progress = halfway();
  EXPECT_EQ(progress_line(progress, 83),
            "epoch  3/10   step 1,170/2,340   loss 0.4321   lr 0.1        12,345 images/s   eta 1:23");
  const auto place = progress_line(progress, 83).find("images/s");
  progress.step = 5;
  progress.lr = 1.234567e-05;
  progress.images_per_second = 999;
  EXPECT_EQ(progress_line(progress, std::nullopt).find("images/s"), place);
}

TEST(ProgressLineTest, SaysWhatLimits) {
  TrainingProgress progress = halfway();
  progress.peak_share = 0.617;
  progress.limit = "data wait";
  EXPECT_THAT(progress_line(progress, 83), HasSubstr("12,345 images/s   62% of peak   data wait   eta 1:23"));
  EXPECT_THAT(progress_bar(progress, 83, 150, false), HasSubstr("12,345 images/s  62% of peak  data wait  eta 1:23"));
  // The first to go where there is no room.
  const std::string narrow = progress_bar(progress, 83, 90, false);
  EXPECT_THAT(narrow, Not(HasSubstr("peak")));
  EXPECT_THAT(narrow, HasSubstr("12,345 images/s"));
}

TEST(LimitTest, IsTheLongestPhaseOrCompute) {
  PhaseTotals phases;
  EXPECT_EQ(limit_of(phases), "");
  phases[Phase::forward] = 2;
  phases[Phase::backward] = 3;
  phases[Phase::exposed_communication] = 4;
  EXPECT_EQ(limit_of(phases), "compute");
  phases[Phase::exposed_communication] = 6;
  EXPECT_EQ(limit_of(phases), "communication");
  phases[Phase::data_wait] = 7;
  EXPECT_EQ(limit_of(phases), "data wait");
}

TEST(LossTextTest, HasFourDigits) {
  EXPECT_EQ(loss_text(0.43214), "0.4321");
  EXPECT_EQ(loss_text(123456), "1.235e+05");
  EXPECT_EQ(loss_text(std::nan("")), "nan");
}

TEST(TextWidthTest, CountsCharacters) {
  EXPECT_EQ(text_width(""), 0);
  EXPECT_EQ(text_width("abc"), 3);
  EXPECT_EQ(text_width("▕█▏é"), 4);
}

}  // namespace
}  // namespace ddp
