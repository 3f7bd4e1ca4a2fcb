// Invalid combinations of optimizer and schedule options.
#include "options/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "unit/options/support.h"

namespace ddp {
namespace {

using testing::HasSubstr;

std::string refusal(const std::vector<std::string>& arguments) { return usage_message(arguments); }

TEST(CheckOptimizer, TakesWhatTheRuleReads) {
  const std::vector<std::vector<std::string>> cases = {
      {"--optimizer", "sgd", "--momentum", "0.9", "--nesterov", "--decay", "decoupled"},
      {"--optimizer", "adam", "--beta1", "0.8", "--beta2", "0.99", "--epsilon", "1e-3", "--decay", "decoupled"},
      {"--optimizer", "adamw", "--weight-decay", "0.05", "--no-decay-on", "norm-and-bias", "--clip-norm", "1"},
      {"--optimizer", "rmsprop", "--rho", "0.9", "--momentum", "0.9", "--rmsprop-form", "keras"},
      {"--optimizer", "lars", "--lars-trust", "0.01", "--momentum", "0.9"},
      {"--optimizer", "lamb", "--epsilon", "1e-6", "--ema-decay", "0.999", "--ema-warmup"},
      {"--optimizer", "muon", "--muon-momentum", "0.6", "--muon-steps", "3", "--muon-scale", "none", "--muon-normalize",
       "--momentum", "0.85", "--nesterov"},
  };
  for (const auto& arguments : cases) EXPECT_NO_THROW((void)parse(arguments)) << arguments[1];
}

TEST(CheckOptimizer, RefusesWhatTheRuleDoesNotRead) {
  EXPECT_THAT(
      refusal({"--optimizer", "adam", "--momentum", "0.9"}),
      HasSubstr("--momentum has no effect with --optimizer adam, only with sgd, rmsprop, lars, muon; remove it"));
  EXPECT_THAT(refusal({"--optimizer", "lars", "--momentum", "0.9", "--nesterov"}),
              HasSubstr("--nesterov has no effect with --optimizer lars"));
  EXPECT_THAT(refusal({"--optimizer", "rmsprop", "--momentum", "0.9", "--nesterov"}),
              HasSubstr("--nesterov has no effect with --optimizer rmsprop"));
  EXPECT_THAT(refusal({"--beta1", "0.8"}),
              HasSubstr("--beta1 has no effect with --optimizer sgd, only with adam, adamw, lamb"));
  EXPECT_THAT(refusal({"--optimizer", "rmsprop", "--beta2", "0.8"}),
              HasSubstr("--beta2 has no effect with --optimizer rmsprop"));
  EXPECT_THAT(refusal({"--optimizer", "lars", "--epsilon", "0.1"}),
              HasSubstr("--epsilon has no effect with --optimizer lars"));
  EXPECT_THAT(refusal({"--optimizer", "adam", "--rho", "0.9"}),
              HasSubstr("--rho has no effect with --optimizer adam, only with rmsprop"));
  EXPECT_THAT(refusal({"--rmsprop-form", "keras"}),
              HasSubstr("--rmsprop-form has no effect with --optimizer sgd, only with rmsprop"));
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{
           {"muon-momentum", "0.6"}, {"muon-steps", "3"}, {"muon-scale", "rms"}, {"muon-normalize", "on"}}) {
    EXPECT_THAT(refusal({"--" + key, value}),
                HasSubstr("--" + key + " has no effect with --optimizer sgd, only with muon"));
  }
  EXPECT_THAT(refusal({"--optimizer", "lamb", "--lars-trust", "0.9"}),
              HasSubstr("--lars-trust has no effect with --optimizer lamb"));
  EXPECT_THAT(refusal({"--optimizer", "adamw", "--decay", "l2"}), HasSubstr("use --optimizer adam"));
  EXPECT_THAT(refusal({"--optimizer", "lamb", "--decay", "l2"}), HasSubstr("remove --decay l2"));
  EXPECT_THAT(refusal({"--optimizer", "lars", "--decay", "decoupled"}), HasSubstr("remove --decay decoupled"));
  EXPECT_THAT(refusal({"--random-crop-fill", "reflect"}), HasSubstr("requires --random-crop-padding"));
  EXPECT_THAT(refusal({"--clip-norm", "1", "--clip-value", "1"}), HasSubstr("mutually exclusive"));
  EXPECT_THAT(refusal({"--optimizer", "lars", "--clip-value", "1"}), HasSubstr("does not support --clip-value"));
  EXPECT_THAT(refusal({"--ema-warmup"}), HasSubstr("--ema-warmup requires --ema-decay"));
  for (const char* value : {"2", "2,9,1", "0,9", "15,9", "2,31"}) {
    EXPECT_THAT(refusal({"--rand-augment", value}), HasSubstr("a magnitude from 0 to 30, such as 2,9")) << value;
  }
  EXPECT_THAT(refusal({"--lookahead-decay", "0.7"}), HasSubstr("require --lookahead > 0"));
  EXPECT_THAT(refusal({"--mixup-per", "batch"}), HasSubstr("--mixup-per requires --mixup or --cutmix"));
}

TEST(CheckOptimizer, RangesAreThoseOfTheRules) {
  for (const char* key : {"--beta1", "--beta2", "--rho", "--ema-decay"}) {
    for (const char* value : {"1", "-0.1", "1.5"}) {
      EXPECT_THAT(refusal({"--optimizer", "adam", key, value}), HasSubstr("expected a number in [0, 1)")) << key;
    }
  }
  EXPECT_THAT(refusal({"--epsilon", "-1"}), HasSubstr("out of range"));
  EXPECT_THAT(refusal({"--clip-norm", "-1"}), HasSubstr("out of range"));
  EXPECT_THAT(refusal({"--lars-trust", "0"}), HasSubstr("out of range"));
  EXPECT_THAT(refusal({"--optimizer", "muon", "--muon-momentum", "1"}), HasSubstr("expected a number in [0, 1)"));
  EXPECT_THAT(refusal({"--optimizer", "muon", "--muon-steps", "0"}), HasSubstr("out of range"));
  EXPECT_THAT(refusal({"--optimizer", "adamx"}), HasSubstr("one of sgd, adam, adamw, rmsprop, lars, lamb, muon"));
}

TEST(CheckOptimizer, ReadsPatternsOfParameters) {
  const OptimizerOptions o =
      parse({"--lr-for", "*.norm?.bias=64,a=b=0.5", "--decay-for", "*=0", "--freeze", "whiten.weight,whiten.bias@2.5"})
          .optimizer;
  EXPECT_EQ(o.lr_for, (std::vector<PatternFactor>{{"*.norm?.bias", 64}, {"a=b", 0.5}}));
  EXPECT_EQ(o.decay_for, (std::vector<PatternFactor>{{"*", 0}}));
  EXPECT_EQ(o.freeze, (std::vector<PatternEpochs>{{"whiten.weight", 0}, {"whiten.bias", 2.5}}));
  for (const char* value : {"*", "*=", "=2", "*=-1", "a=1,", "a=x"}) {
    EXPECT_THAT(refusal({"--lr-for", value}), HasSubstr("expected patterns of parameter names with a factor")) << value;
  }
  EXPECT_EQ(parse({"--lr-fade-for", "whiten.bias@3,a*@0.5"}).optimizer.lr_fade_for,
            (std::vector<PatternEpochs>{{"whiten.bias", 3}, {"a*", 0.5}}));
  for (const char* value : {"a", "a@0", "@2", "a@x", "a@1,b"}) {
    EXPECT_THAT(refusal({"--lr-fade-for", value}), HasSubstr("each with @ and a number of epochs > 0")) << value;
  }
  for (const char* value : {"@2", "a@", "a@-1", ",a", "a@x"}) {
    EXPECT_THAT(refusal({"--freeze", value}), HasSubstr("expected patterns of parameter names, each with @")) << value;
  }
}

TEST(CheckSchedule, TakesWhatTheScheduleReads) {
  const std::vector<std::vector<std::string>> cases = {
      {"--schedule", "step", "--lr-decay-steps", "100", "--lr-gamma", "0.5"},
      {"--schedule", "multi-step", "--lr-milestones", "30,60", "--schedule-by", "step"},
      {"--schedule", "one-cycle", "--one-cycle-rise", "0.4", "--one-cycle-div", "10", "--warmup-epochs", "1"},
      {"--schedule", "one-cycle", "--one-cycle-momentum", "--nesterov", "--one-cycle-low-momentum", "0.8"},
      {"--schedule", "polynomial", "--lr-power", "2", "--lr-min", "0.01"},
      {"--schedule", "exponential", "--lr-step-epochs", "1", "--lr-staircase"},
      {"--schedule", "cosine", "--schedule-by", "epoch"},
  };
  for (const auto& arguments : cases) EXPECT_NO_THROW((void)parse(arguments)) << arguments[1];
  const std::vector<std::int64_t> milestones = {30, 60};
  EXPECT_EQ(parse({"--schedule", "multi-step", "--lr-milestones", "30,60"}).optimizer.lr_milestones, milestones);
}

TEST(CheckSchedule, RefusesWhatItDoesNotReadOrLacks) {
  EXPECT_THAT(refusal({"--schedule", "multi-step"}), HasSubstr("requires --lr-milestones"));
  EXPECT_THAT(refusal({"--schedule", "exponential"}), HasSubstr("requires --lr-step-epochs"));
  EXPECT_THAT(refusal({"--schedule", "step", "--lr-step-epochs", "1", "--lr-decay-steps", "9"}),
              HasSubstr("mutually exclusive"));
  EXPECT_THAT(refusal({"--schedule", "cosine", "--lr-milestones", "3"}), HasSubstr("only with multi-step; remove it"));
  EXPECT_THAT(refusal({"--schedule", "cosine", "--lr-decay-steps", "3"}),
              HasSubstr("--lr-decay-steps has no effect with --schedule cosine"));
  EXPECT_THAT(refusal({"--lr-staircase"}), HasSubstr("only with exponential; remove it"));
  EXPECT_THAT(refusal({"--lr-power", "2"}), HasSubstr("only with polynomial; remove it"));
  EXPECT_THAT(refusal({"--one-cycle-div", "2"}), HasSubstr("only with one-cycle; remove it"));
  EXPECT_THAT(refusal({"--one-cycle-momentum"}), HasSubstr("only with one-cycle; remove it"));
  EXPECT_THAT(refusal({"--one-cycle-anneal", "linear"}), HasSubstr("only with one-cycle; remove it"));
  EXPECT_THAT(refusal({"--schedule", "one-cycle", "--one-cycle-low-momentum", "0.5"}),
              HasSubstr("require --one-cycle-momentum"));
  EXPECT_THAT(refusal({"--schedule", "one-cycle", "--one-cycle-momentum", "--momentum", "0.9"}),
              HasSubstr("--momentum has no effect with --one-cycle-momentum"));
  EXPECT_THAT(refusal({"--optimizer", "adam", "--schedule", "one-cycle", "--one-cycle-momentum", "--beta1", "0.8"}),
              HasSubstr("--beta1 has no effect with --one-cycle-momentum"));
  EXPECT_THAT(refusal({"--schedule", "one-cycle", "--one-cycle-momentum", "--one-cycle-low-momentum", "0.96"}),
              HasSubstr("--one-cycle-low-momentum 0.96 is greater than --one-cycle-high-momentum 0.95"));
  EXPECT_THAT(refusal({"--schedule", "polynomial", "--lr-min", "0.2"}),
              HasSubstr("--lr-min 0.2 is greater than --lr 0.1"));
  for (const char* value : {"60,30", "3,3", "0,3", "3,", "x"}) {
    EXPECT_THAT(refusal({"--schedule", "multi-step", "--lr-milestones", value}),
                HasSubstr("strictly increasing integers >= 1"));
  }
}

TEST(CheckProgressive, TheSizesNeedTheirEpochs) {
  const std::vector<std::string> complete = {"--progressive-size", "128x96", "--progressive-begin",  "2",
                                             "--progressive-end",  "12",     "--progressive-stages", "3"};
  const DataOptions data = parse(complete).data;
  EXPECT_EQ(data.progressive_size, (ImageSides{.height = 128, .width = 96}));
  EXPECT_EQ(data.progressive_begin, 2);
  EXPECT_EQ(data.progressive_end, 12);
  EXPECT_EQ(data.progressive_stages, 3);
  EXPECT_THAT(refusal({"--progressive-size", "128"}), HasSubstr("--progressive-size requires --progressive-end"));
  EXPECT_THAT(refusal({"--progressive-size", "128", "--progressive-begin", "3", "--progressive-end", "3"}),
              HasSubstr("greater than --progressive-begin 3"));
  EXPECT_THAT(refusal({"--progressive-end", "3"}), HasSubstr("require --progressive-size"));
  EXPECT_THAT(refusal({"--progressive-stages", "3"}), HasSubstr("require --progressive-size"));
  EXPECT_THAT(refusal({"--progressive-size", "4", "--progressive-end", "3"}), HasSubstr("from 8 to 2048"));
}

}  // namespace
}  // namespace ddp
