#include "metrics/timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "support/errors.h"
#include "support/temporary_folder.h"

namespace ddp {
namespace {

using ::testing::HasSubstr;

RunTiming sample_timing() {
  RunTiming timing;
  timing.facts = {.program = "0.1.0",
                  .device = "CPU",
                  .hosts = {"a", "b"},
                  .machines = {0, 1},
                  .threads = {1, 2},
                  .cpus = {4, 4},
                  .samples = {33, 32},
                  .workers = 2,
                  .global_batch = 65,
                  .shards = 2,
                  .steps_per_epoch = 10,
                  .reduction = "ring",
                  .overlaps = true,
                  .flops_per_sample = 1e6,
                  .peak_flops = 1e11,
                  .bucket_bytes = {1e6, 2e6},
                  .divisible = {.names = {"fc1", "fc 2"}, .activations = 5e4, .gradients = 2.5e6},
                  .pipeline = {2, 8, {"conv1", "fc1 to fc2"}, 0.0125}};
  timing.complete = true;
  timing.step = 20;
  timing.evaluations = 2;
  timing.checkpoints = 3;
  RankTiming rank;
  rank.steps = 18;
  for (const Phase phase : kPhases) rank.phases[phase] = 0.1 + static_cast<double>(phase);
  rank.slowest = 3;
  rank.best_work = 0.25;
  rank.core_wait = 0.5;
  rank.cpu_seconds = 12;
  rank.loader = {18, 30, 4.5, 1.25};
  rank.sum_seconds = 0.125;
  rank.memory = 1e9;
  rank.gpu_clock = {.samples = 5, .speed = 3.5, .heat = 4, .power = 1};
  timing.ranks = {rank, rank};
  timing.ranks[1].core_wait = 7;
  timing.buckets = {{0.1, 0.2, 0.3, 0.05}, {0.4, 0.5, 0.6, 0.07}};
  return timing;
}

TEST(TimingTest, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  const RunTiming timing = sample_timing();
  write_timing(folder.path(), timing);
  const RunTiming read = read_timing(folder.path());
  EXPECT_EQ(read.facts, timing.facts);
  EXPECT_EQ(read.ranks, timing.ranks);
  EXPECT_EQ(to_json(read), to_json(timing));
}

TEST(TimingTest, RunsOfEarlierVersionsAreRead) {
  RunTiming timing = sample_timing();
  timing.facts.hosts = {"a", "a"};
  std::string text = to_json(timing);
  for (const std::string key : {R"("machines":)", R"("gpu_clock":)", R"("slowest":)", R"("cpu":)"}) {
    for (std::size_t at = text.find(key); at != std::string::npos; at = text.find(key)) {
      text.replace(at, key.size(), R"("unknown":)");
    }
  }
  const RunTiming read = parse_timing(text, "t");
  EXPECT_EQ(read.facts.machines, (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(read.ranks[0].gpu_clock, GpuClockCounts{});
  EXPECT_EQ(read.ranks[0].slowest, 0);
  EXPECT_EQ(read.ranks[0].loader.cpu_seconds, 4.5) << "loading may have kept a core busy";
}

TEST(TimingTest, EveryTruncationIsOneLine) {
  const std::string text = to_json(sample_timing());
  for (std::size_t size = 0; size + 1 < text.size(); size += 7) {
    EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { (void)parse_timing(text.substr(0, size), "t"); }),
                HasSubstr("t: damaged"));
  }
}

TEST(TimingTest, WhatDoesNotBelongTogetherIsRejected) {
  RunTiming timing = sample_timing();
  timing.facts.hosts.pop_back();
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { (void)parse_timing(to_json(timing), "t"); }),
              HasSubstr("do not belong together"));
  timing = sample_timing();
  timing.facts.pipeline.stages = 3;  // of 2 ranks
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { (void)parse_timing(to_json(timing), "t"); }),
              HasSubstr("do not belong together"));
  std::string newer = to_json(sample_timing());
  newer.replace(newer.find("\"version\":1"), 11, "\"version\":9");
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { (void)parse_timing(newer, "t"); }), HasSubstr("newer ddp_train"));
}

TEST(TimingTest, OtherFoldersAreToldApart) {
  const TemporaryFolder folder;
  const auto error = [&](const std::filesystem::path& path) {
    return error_text(ExitCode::checkpoint, [&] { (void)read_timing(path); });
  };
  EXPECT_THAT(error(folder.path() / "nowhere"), HasSubstr("no such folder"));
  EXPECT_THAT(error(folder.path()), HasSubstr("not the folder of a run"));
  replace_file(folder.path() / "config.cfg", "model = lenet\n", ExitCode::internal);
  EXPECT_THAT(error(folder.path()), HasSubstr("older ddp_train"));
}

}  // namespace
}  // namespace ddp
