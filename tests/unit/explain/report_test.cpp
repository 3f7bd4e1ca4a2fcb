// Charts and pages are well-formed, complete and escaped.
#include "explain/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/file.h"
#include "explain/chart.h"
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
  EXPECT_THAT(svg, HasSubstr("points='64.0,12.0 628.0,220.0 '"));
}

TEST(ChartTest, GapsInterruptALineAndNothingIsNotDrawn) {
  const double nan = std::nan("");
  const std::string svg = line_chart({"x", "step", {{"a", {{0, 1}, {1, 2}, {2, nan}, {3, 1}, {4, 5}}}}});
  EXPECT_EQ(count(svg, "<polyline"), 2);
  EXPECT_EQ(line_chart({"x", "step", {{"a", {{0, nan}, {1, 2}}}}}), "");
  EXPECT_EQ(line_chart({"x", "step", {}}), "");
  EXPECT_THAT(line_chart({"x", "step", {{"a", {{0, 3}, {1, 3}}}}}), Not(HasSubstr("nan")));
}

TEST(ChartTest, LongLinesAreThinnedOutButKeepTheirEnd) {
  Series series{"a", {}};
  for (int i = 0; i <= 100'000; ++i) series.points.emplace_back(i, i);
  const std::string svg = line_chart({"x", "step", {series}});
  EXPECT_LT(svg.size(), 20'000U);
  EXPECT_THAT(svg, HasSubstr("628.0,12.0 '"));
}

TEST(ChartTest, HeatMapsShadeByTheLargestValue) {
  const std::string svg = heat_map({"m", {"r"}, {"a", "b"}, {{4, 1}}, false});
  EXPECT_EQ(unbalanced(svg), "");
  EXPECT_THAT(svg, HasSubstr("fill-opacity='1.000'"));
  EXPECT_THAT(svg, HasSubstr("fill-opacity='0.250'"));
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
                           "training loss", "gradient norm", "verdict: ", "confusion matrix after step 200",
                           "Options that differ", "1 host-b", "1 (50.0%)"}) {
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

TEST(ReportTest, OtherFoldersAreOneLine) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { (void)read_reported_run(folder.path()); }),
              HasSubstr("no metrics.jsonl; it is not the folder of a run"));
}

}  // namespace
}  // namespace ddp
