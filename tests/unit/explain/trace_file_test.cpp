#include "explain/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ddp {
namespace {

using TestJson = nlohmann::json;

// Steps of 10 ms: 1 ms data wait, 3 ms forward, 5 ms backward, beside which a bucket is summed for 2 ms.
std::vector<StepSample> sample_steps(int count) {
  std::vector<StepSample> steps;
  for (int n = 0; n < count; ++n) {
    StepSample step;
    step.step = n + 1;
    step.begin = 100 + 0.01 * n;
    step.end = step.begin + 0.01;
    step.phases[Phase::data_wait] = 0.001;
    step.phases[Phase::forward] = 0.003;
    step.phases[Phase::backward] = 0.005;
    step.ready_batches = 2;
    step.buckets[0] = {step.begin + 0.005, step.begin + 0.006, step.begin + 0.008};
    step.bucket_count = 1;
    steps.push_back(step);
  }
  return steps;
}

// What every reader of the format requires of an event.
void check_event(const TestJson& event) {
  const auto kind = event.at("ph").get<std::string>();
  EXPECT_TRUE(event.at("name").is_string());
  EXPECT_TRUE(event.at("pid").is_number_integer());
  if (kind == "M") return;
  EXPECT_TRUE(event.at("ts").is_number());
  if (kind == "X") {
    EXPECT_GT(event.at("dur").get<double>(), 0);
  }
}

TEST(TraceFileTest, EveryRankIsAProcessWithItsSteps) {
  std::vector<std::string> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    // Their clocks are 5 s apart.
    const double offset = -5.0 * rank;
    std::vector<StepSample> steps = sample_steps(4);
    for (StepSample& step : steps) {
      step.begin -= offset;
      step.end -= offset;
    }
    ranks.push_back(trace_events({rank, "host \"a\"", {{100, offset, 1e-5}, {200, offset, 2e-5}}, steps}));
  }
  const TestJson trace = TestJson::parse(trace_file(ranks));
  std::map<std::string, int> spans;
  std::map<int, double> first;
  for (const TestJson& event : trace.at("traceEvents")) {
    check_event(event);
    if (event.at("ph") == "X") ++spans[event.at("name").get<std::string>()];
    if (event.at("name") == "step 1") first[event.at("pid").get<int>()] = event.at("ts").get<double>();
  }
  EXPECT_EQ(spans["step 4"], 3);
  EXPECT_EQ(spans["forward"], 12);
  EXPECT_EQ(spans["bucket 1"], 12);
  EXPECT_EQ(spans.count("evaluation"), 0U);
  // On one clock the ranks begin at the same time.
  ASSERT_EQ(first.size(), 3U);
  EXPECT_NEAR(first[1], first[0], 0.01);
  EXPECT_NEAR(first[2], first[0], 0.01);
}

TEST(TraceFileTest, TheOverlapInTheTraceIsThatOfTheCounters) {
  const std::vector<std::string> one = {trace_events({0, "a", {}, sample_steps(10)})};
  const TestJson trace = TestJson::parse(trace_file(one));
  double hidden = 0;
  TestJson backward;
  for (const TestJson& event : trace.at("traceEvents")) {
    if (event.at("name") == "backward") backward = event;
    if (event.at("name") != "bucket 1") continue;
    const double begin = event.at("ts").get<double>();
    const double end = begin + event.at("dur").get<double>();
    const double from = backward.at("ts").get<double>();
    hidden += std::max(0.0, std::min(end, from + backward.at("dur").get<double>()) - std::max(begin, from));
  }
  // All of the sum lies in backward: 10 times 2 ms.
  EXPECT_NEAR(hidden, 10 * 2000, 1);
}

TEST(TraceFileTest, EveryLoaderThreadHasARow) {
  // Two threads share each batch; the first batch was read before the first step that is shown.
  std::vector<LoadSpan> loads;
  for (int step = 0; step < 3; ++step) {
    for (int worker = 0; worker < 2; ++worker) {
      loads.push_back({worker, step, 99.99 + 0.01 * step, 99.995 + 0.01 * step});
    }
  }
  const std::vector<std::string> one = {trace_events({0, "a", {}, sample_steps(3), loads})};
  std::map<int, int> spans;
  std::map<int, std::string> names;
  const TestJson trace = TestJson::parse(trace_file(one));
  for (const TestJson& event : trace.at("traceEvents")) {
    check_event(event);
    if (event.at("name") == "thread_name") names[event.at("tid").get<int>()] = event.at("args").at("name");
    if (!event.at("name").get<std::string>().starts_with("batch of step ")) continue;
    ++spans[event.at("tid").get<int>()];
    EXPECT_NEAR(event.at("dur").get<double>(), 5000, 1);
    EXPECT_GE(event.at("args").at("step").get<int>(), 1);
  }
  ASSERT_EQ(spans.size(), 2U);
  for (const auto& [row, count] : spans) {
    EXPECT_EQ(count, 2);
    EXPECT_TRUE(names[row] == "loader 1" || names[row] == "loader 2") << names[row];
  }
}

TEST(TraceFileTest, EveryStreamOfTheGpuHasARow) {
  // Kernels of 2 ms on two streams in turn, from before the first step that is shown.
  std::vector<GpuSpan> kernels;
  for (int i = 0; i < 20; ++i) {
    kernels.push_back({"conv<\"a\">", static_cast<std::uint32_t>(7 + i % 2), 99.99 + 2e-3 * i, 99.992 + 2e-3 * i});
  }
  const AlignedClock late{{100, 3, 1e-6}, {200, 3, 1e-6}};
  const std::vector<std::string> one = {trace_events({0, "a", late, sample_steps(3), {}, kernels})};
  const TestJson trace = TestJson::parse(trace_file(one));
  std::map<int, int> spans;
  std::map<int, std::string> names;
  double sum = 0;
  double begin = 0;
  double end = 0;
  for (const TestJson& event : trace.at("traceEvents")) {
    check_event(event);
    if (event.at("name") == "thread_name") names[event.at("tid").get<int>()] = event.at("args").at("name");
    if (event.at("name") == "step 1") begin = event.at("ts").get<double>();
    if (event.at("name") == "step 3") end = event.at("ts").get<double>() + event.at("dur").get<double>();
    if (event.at("name") != "conv<\"a\">") continue;
    ++spans[event.at("tid").get<int>()];
    sum += event.at("dur").get<double>();
    EXPECT_GE(event.at("ts").get<double>(), begin - 1);
    EXPECT_LE(event.at("ts").get<double>() + event.at("dur").get<double>(), end + 1);
  }
  ASSERT_EQ(spans.size(), 2U);
  for (const auto& [row, count] : spans) EXPECT_THAT(names[row], testing::StartsWith("GPU, stream "));
  EXPECT_NEAR(sum, 15 * 2000, 20);
}

TEST(TraceFileTest, PausesLieBeforeTheirStep) {
  std::vector<StepSample> steps = sample_steps(1);
  steps[0].phases[Phase::evaluation] = 0.5;
  steps[0].phases[Phase::checkpoint] = 0.25;
  const std::vector<std::string> one = {trace_events({0, "a", {}, steps})};
  const TestJson trace = TestJson::parse(trace_file(one));
  double checkpoint = 0;
  double evaluation = 0;
  for (const TestJson& event : trace.at("traceEvents")) {
    if (event.at("name") == "checkpoint") checkpoint = event.at("ts").get<double>();
    if (event.at("name") == "evaluation") evaluation = event.at("ts").get<double>();
  }
  EXPECT_NEAR(checkpoint, (100 - 0.75) * 1e6, 1);
  EXPECT_NEAR(evaluation, (100 - 0.5) * 1e6, 1);
}

}  // namespace
}  // namespace ddp
