#include "sweep/leaderboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<TrialResult> three() {
  return {{.trial = 1,
           .setting = {{"lr", "0.1"}},
           .state = TrialState::finished,
           .epochs = 2,
           .accuracy = 0.5,
           .best_epoch = 2,
           .val_loss = 1.25,
           .seconds = 3},
          {.trial = 2,
           .setting = {{"lr", "1e6"}},
           .state = TrialState::failed,
           .reason = "exit code 6: not finite, \"NaN\"; lower"},
          {.trial = 3,
           .setting = {{"lr", "0.3"}, {"seed", "2"}},
           .state = TrialState::paused,
           .epochs = 1,
           .accuracy = 0.75,
           .best_epoch = 1,
           .val_loss = 0.5,
           .seconds = 1.5}};
}

TEST(Leaderboard, TheBestIsFirstAndTrialsWithoutResultLast) {
  const std::vector<TrialResult> best = ranked(three());
  EXPECT_EQ(best[0].trial, 3);
  EXPECT_EQ(best[1].trial, 1);
  EXPECT_EQ(best[2].trial, 2);
}

TEST(Leaderboard, CsvHasAColumnForEachOption) {
  EXPECT_EQ(board_csv(ranked(three())),
            "place,trial,state,epochs,val_accuracy,best_epoch,val_loss,seconds,lr,seed,reason\n"
            "1,3,paused,1,0.75,1,0.5,1.500,0.3,2,\n"
            "2,1,finished,2,0.5,2,1.25,3.000,0.1,,\n"
            "3,2,failed,0,,,,0.000,1e6,,\"exit code 6: not finite, \"\"NaN\"\"; lower\"\n");
}

TEST(Leaderboard, TheTextShowsTheFirstRows) {
  const std::string text = board_text(ranked(three()), 2);
  EXPECT_THAT(text, HasSubstr("lr=0.3 seed=2"));
  EXPECT_THAT(text, Not(HasSubstr("1e6")));
  EXPECT_THAT(text, HasSubstr("and 1 more in leaderboard.csv"));
  EXPECT_THAT(board_text(ranked(three()), 9), HasSubstr("lr=1e6; exit code 6: not finite, \"NaN\"\n"));
}

TEST(Leaderboard, FoldsHaveAMeanForEachOtherSetting) {
  std::vector<TrialResult> results;
  for (const auto& [fold, rate, accuracy] :
       {std::tuple("1/3", "0.1", 0.5), {"2/3", "0.1", 0.6}, {"3/3", "0.1", 0.7}, {"1/3", "0.2", 0.9}}) {
    results.push_back({.setting = {{"fold", fold}, {"lr", rate}}, .accuracy = accuracy});
  }
  results.push_back({.setting = {{"fold", "2/3"}, {"lr", "0.2"}}});
  EXPECT_EQ(folds_text(results),
            "3 folds: mean accuracy 0.6000, standard deviation 0.1000; lr=0.1\n1 fold: mean accuracy 0.9000; lr=0.2\n");
  EXPECT_EQ(folds_text(std::vector<TrialResult>{{.setting = {{"lr", "0.1"}}, .accuracy = 0.5}}), "");
}

}  // namespace
}  // namespace ddp
