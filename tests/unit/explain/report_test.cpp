// Charts and pages are well-formed, complete and escaped.
#include "explain/report/report.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "base/file.h"
#include "explain/report/chart.h"
#include "support/errors.h"
#include "support/temporary_folder.h"

namespace ddp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

// Every element that is opened is closed, in order; "" or what is wrong.
std::string unbalanced(const std::string& html) {
  std::vector<std::string> open;
  for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const std::size_t end = html.find('>', at);
    if (end == std::string::npos) return "an unfinished tag";
    std::string tag = html.substr(at + 1, end - at - 1);
    if (tag.starts_with('!') || tag.ends_with('/') || tag.starts_with("meta")) continue;
    if (!tag.starts_with('/')) {
      open.push_back(tag.substr(0, tag.find(' ')));
    } else if (open.empty() || open.back() != tag.substr(1)) {
      return "<" + tag + "> closes " + (open.empty() ? "nothing" : open.back());
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> stays open";
}

ReportedRun sample_run(const std::string& name) {
  ReportedRun run;
  run.name = name;
  run.config = {{"lr", name}, {"model", "lenet"}};
  run.classes = {"cat", "dog"};
  run.epochs = {{.epoch = 1, .step = 100, .train_loss = 0.7, .val_loss = 0.5, .val_accuracy = 0.75}};
  for (std::int64_t step = 10; step <= 200; step += 10) {
    TrainRecord record{.step = step, .loss = 10.0 / static_cast<double>(step), .lr = 0.1, .images_per_second = 100};
    record.grad_norm = step == 50 ? std::nan("") : 2;
    record.phases[Phase::forward] = 0.4;
    record.phases[Phase::backward] = 0.6;
    run.history.training.push_back(record);
  }
  EvalRecord evaluation{.step = 100, .val_loss = 0.5, .val_accuracy = 0.75};
  evaluation.class_accuracy = {1, 0.5};
  evaluation.confusion = {{10, 0}, {5, 5}};
  run.history.evaluations = {evaluation, evaluation};
  run.history.evaluations[1].step = 200;
  RunTiming timing;
  timing.facts.hosts = {"host-a", "host-b"};
  timing.facts.machines = {0, 1};
  timing.facts.threads = timing.facts.cpus = timing.facts.samples = {1, 1};
  timing.facts.global_batch = 2;
  RankTiming rank;
  rank.steps = 10;
  rank.phases[Phase::forward] = 0.25;
  rank.phases[Phase::backward] = 0.75;
  timing.ranks = {rank, rank};
  run.timing = timing;
  return run;
}

TEST(ChartTest, LinesFollowTheirValues) {
  const std::string svg = line_chart({"loss", "step", {{"a", {{0, 1}, {10, 0}}}}});
  EXPECT_EQ(unbalanced(svg), "");
  EXPECT_THAT(svg, HasSubstr("aria-label='loss: a ends at 0'"));
  // From the upper left of the axes to the lower right.
  EXPECT_THAT(svg, HasSubstr("points='64.0,12.0 618.0,220.0 '"));
}

TEST(ChartTest, GapsInterruptALineAndNothingIsNotDrawn) {
  const double nan = std::nan("");
  const std::string svg = line_chart({"x", "step", {{"a", {{0, 1}, {1, 2}, {2, nan}, {3, 1}, {4, 5}}}}});
  EXPECT_EQ(count(svg, "<polyline"), 2);
  EXPECT_EQ(line_chart({"x", "step", {{"a", {{0, nan}, {1, nan}}}}}), "");
  // A single point is visible.
  EXPECT_EQ(count(line_chart({"x", "step", {{"a", {{0, nan}, {1, 2}}}}}), "<circle"), 1);
  EXPECT_EQ(line_chart({"x", "step", {}}), "");
  EXPECT_THAT(line_chart({"x", "step", {{"a", {{0, 3}, {1, 3}}}}}), Not(HasSubstr("nan")));
}

TEST(ChartTest, LongLinesAreThinnedOutButKeepTheirEnd) {
  Series series{"a", {}};
  for (int i = 0; i <= 100'000; ++i) series.points.emplace_back(i, i);
  const std::string svg = line_chart({"x", "step", {series}});
  EXPECT_LT(svg.size(), 20'000U);
  EXPECT_THAT(svg, HasSubstr("618.0,12.0 '"));
}

TEST(ChartTest, HeatMapsShadeByTheLargestValue) {
  const std::string svg = heat_map({"m", {"r"}, {"a", "b"}, {{4, 1}}, false});
  EXPECT_EQ(unbalanced(svg), "");
  EXPECT_THAT(svg, HasSubstr("fill-opacity='0.650'"));
  EXPECT_THAT(svg, HasSubstr("fill-opacity='0.163'"));
  EXPECT_THAT(svg, HasSubstr(">4<"));
}

TEST(ReportTest, APageShowsEverythingAndNeedsNothingFromElsewhere) {
  const std::vector<ReportedRun> runs = {sample_run("runs/a"), sample_run("<b> & 'c'")};
  const std::string html = report(runs);
  std::string body = html;
  body.erase(body.find("<style>"), body.find("</style>") - body.find("<style>") + 8);
  EXPECT_EQ(unbalanced(body), "");
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
  EXPECT_THAT(html, HasSubstr("&lt;b&gt; &amp; &#39;c&#39;"));
  for (const char* word : {"http", "<script", "src=", "url(", "@import"})
    EXPECT_THAT(html, Not(HasSubstr(word))) << word;
  for (const char* word : {"prefers-color-scheme:dark", "@media print", "width=device-width", "lang='en'",
                           "training loss", "gradient norm", "What was learned", "confusion matrix after step 200",
                           "Options that differ", "1 host-b", "dog (50.0%)"}) {
    EXPECT_THAT(html, HasSubstr(word)) << word;
  }
  // Every picture has a name.
  EXPECT_EQ(count(html, "<svg"), count(html, "role='img' aria-label='"));
  EXPECT_GE(count(html, "<svg"), 10);
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  // Only the option that differs is listed.
  EXPECT_THAT(html, HasSubstr("--lr"));
  EXPECT_THAT(html, Not(HasSubstr("--model")));
}

// The contrast of two colours "#rrggbb" by WCAG 2.1.
double contrast(const std::string& a, const std::string& b) {
  const auto luminance = [](const std::string& colour) {
    double sum = 0;
    constexpr std::array kWeights = {0.2126, 0.7152, 0.0722};
    for (std::size_t i = 0; i < 3; ++i) {
      const double share = std::stoi(colour.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
      sum += kWeights.at(i) * (share <= 0.03928 ? share / 12.92 : std::pow((share + 0.055) / 1.055, 2.4));
    }
    return sum;
  };
  const double x = luminance(a) + 0.05;
  const double y = luminance(b) + 0.05;
  return std::max(x, y) / std::min(x, y);
}

// `top` with this opacity over `below`.
std::string mixed(const std::string& below, const std::string& top, double opacity) {
  std::string colour = "#";
  for (std::size_t i = 1; i < 7; i += 2) {
    const auto of = [i](const std::string& each) { return std::stoi(each.substr(i, 2), nullptr, 16); };
    colour += fmt::format("{:02x}", static_cast<int>(std::lround(of(below) * (1 - opacity) + of(top) * opacity)));
  }
  return colour;
}

TEST(ReportTest, TextIsReadableInBothThemes) {
  const std::vector<ReportedRun> runs = {sample_run("a")};
  const std::string html = report(runs);
  const std::size_t dark = html.find("prefers-color-scheme:dark");
  for (const std::size_t theme : {std::size_t{0}, dark}) {
    const auto colour = [&](const std::string& name) {
      const std::size_t at = html.find("--" + name + ":#", theme) + name.size() + 3;
      const std::string text = html.substr(at, html.find_first_of(";}", at) - at);
      return text.size() == 7 ? text : std::string{'#', text[1], text[1], text[2], text[2], text[3], text[3]};
    };
    for (const char* text : {"text", "dim"}) {
      EXPECT_GE(contrast(colour(text), colour("page")), 4.5);
      EXPECT_GE(contrast(colour(text), colour("card")), 4.5);
    }
    // The hottest cell, and lines.
    EXPECT_GE(contrast(colour("text"), mixed(colour("card"), colour("heat"), 0.65)), 4.5);
    for (int i = 0; i < 8; ++i) EXPECT_GE(contrast(colour(fmt::format("c{}", i)), colour("card")), 3);
  }
}

TEST(ReportTest, ASweepBeginsWithItsLeaderboard) {
  const TemporaryFolder folder;
  EXPECT_FALSE(is_sweep(folder.path()));
  replace_file(folder.path() / "leaderboard.csv",
               "place,trial,state,epochs,val_accuracy,best_epoch,val_loss,seconds,lr,model,reason\n"
               "1,2,finished,3,0.75,3,0.5,1.500,0.1,\"a,\"\"b\"\"\",\n2,1,finished,3,0.5,2,0.7,1.400,0.001,lenet,\n"
               "3,3,failed,0,,,,0.100,1e6,lenet,\"not finite, at step 1\"\n",
               ExitCode::checkpoint);
  EXPECT_TRUE(is_sweep(folder.path()));
  const ReportedSweep sweep = read_reported_sweep(folder.path());
  ASSERT_EQ(sweep.trials.size(), 3U);
  EXPECT_EQ(sweep.options, (std::vector<std::string>{"lr", "model"}));
  EXPECT_EQ(sweep.trials[0].setting, (std::vector<std::string>{"0.1", "a,\"b\""}));
  const std::string html = report(sweep);
  std::string body = html.substr(html.find("</style>") + 8);
  EXPECT_EQ(unbalanced("<html><head>" + body), "");
  EXPECT_LT(html.find("Leaderboard"), html.find("best accuracy by --lr, percent"));
  EXPECT_THAT(html, HasSubstr("failed: not finite, at step 1"));
  EXPECT_THAT(html, HasSubstr("a,&quot;b&quot;"));
  // Two trials with an accuracy, in each of two charts.
  EXPECT_EQ(count(html, "<circle"), 4);
  replace_file(folder.path() / "leaderboard.csv", "place,trial\n1\n", ExitCode::checkpoint);
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { (void)read_reported_sweep(folder.path()); }),
              HasSubstr("not a leaderboard"));
}

TEST(ReportTest, OtherFoldersAreOneLine) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { (void)read_reported_run(folder.path()); }),
              HasSubstr("no metrics.jsonl; it is not the folder of a run"));
}

}  // namespace
}  // namespace ddp
