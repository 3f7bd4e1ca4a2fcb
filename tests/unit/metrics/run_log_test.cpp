#include "metrics/logs/run_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "metrics/logs/read_log.h"
#include "support/child.h"
#include "support/errors.h"
#include "support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kSummaryHeader = "epoch,step,train_loss,val_loss,val_accuracy,lr,seconds,images_per_second";

class RunLogTest : public ::testing::Test {
 protected:
  std::vector<std::string> lines(const char* name) const {
    std::istringstream text(read_text(run_ / name, ExitCode::internal));
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  }

  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> steps;
    for (const std::string& line : lines("metrics.jsonl")) steps.push_back(nlohmann::json::parse(line).at("step"));
    return steps;
  }

  // A run of two epochs of 20 steps, with a line every 10 steps.
  void write_run() {
    RunLog log(run_, {});
    for (const std::int64_t epoch : {1, 2}) {
      for (const std::int64_t step : {epoch * 20 - 10, epoch * 20})
        log.write(TrainRecord{.step = step, .epoch = epoch});
      log.write(EvalRecord{.step = epoch * 20, .epoch = epoch});
      log.write(EpochRecord{.epoch = epoch, .step = epoch * 20});
    }
  }

  void append(const char* name, const std::string& text) {
    File(run_ / name, File::Mode::append, ExitCode::internal).write(text);
  }

  TemporaryFolder folder_;
  fs::path run_ = folder_.path() / "runs" / "a";
};

TEST_F(RunLogTest, LinesAreWhatTheReadersOfTheFieldExpect) {
  RunLog log(run_, {});
  PhaseTotals phases;
  for (const Phase phase : kPhases) phases[phase] = 0.5 + static_cast<double>(phase);
  log.write(TrainRecord{.step = 50, .epoch = 1, .loss = 2.5, .lr = 0.1, .images_per_second = 12000, .phases = phases});
  log.write(EvalRecord{.step = 234, .epoch = 1, .val_loss = 0.75, .val_accuracy = 0.8125});
  log.write(EpochRecord{.epoch = 1,
                        .step = 234,
                        .train_loss = 1.5,
                        .val_loss = 0.75,
                        .val_accuracy = 0.8125,
                        .lr = 0.1,
                        .seconds = 12.5,
                        .images_per_second = 12000});
  log.write(EpochRecord{.epoch = 2, .step = 468, .train_loss = 1.25, .lr = 0.05, .seconds = 1, .images_per_second = 1});
  log.sync();
  EXPECT_THAT(lines("metrics.jsonl"),
              ElementsAre(R"({"step":50,"epoch":1,"loss":2.5,"lr":0.1,"images_per_second":12000.0,"seconds":)"
                          R"({"data_wait":0.5,"forward":1.5,"backward":2.5,"exposed_communication":3.5,)"
                          R"("optimizer":4.5,"evaluation":5.5,"checkpoint":6.5,"other":7.5},"grad_norm":0.0})",
                          R"({"step":234,"epoch":1,"val_loss":0.75,"val_accuracy":0.8125})"));
  EXPECT_THAT(lines("summary.csv"),
              ElementsAre(kSummaryHeader, "1,234,1.5,0.75,0.8125,0.1,12.5,12000", "2,468,1.25,,,0.05,1,1"));
}

TEST_F(RunLogTest, WhatIsKnownOfALineIsWritten) {
  RunLog log(run_, {});
  TrainRecord record{.step = 1, .grad_norm = 2.5, .mfu = 0.5, .memory = 1024};
  record.sampled = {20, {{}, {}}};
  record.sampled.ranks[1][Phase::forward] = 3;
  log.write(record);
  EvalRecord evaluation{.step = 1, .top5_accuracy = 0.75};
  evaluation.class_accuracy = {1, std::nan("")};
  evaluation.confusion = {{2, 0}, {0, 0}};
  log.write(evaluation);
  const auto json = nlohmann::json::parse(lines("metrics.jsonl")[0]);
  EXPECT_EQ(json.at("grad_norm"), 2.5);
  EXPECT_EQ(json.at("mfu"), 0.5);
  EXPECT_EQ(json.at("memory"), 1024);
  EXPECT_EQ(json.at("ranks").at("steps"), 20);
  EXPECT_EQ(json.at("ranks").at("forward"), (std::vector<double>{0, 3}));
  const auto line = nlohmann::json::parse(lines("metrics.jsonl")[1]);
  EXPECT_EQ(line.at("val_top5_accuracy"), 0.75);
  EXPECT_EQ(line.at("class_accuracy").dump(), "[1.0,null]");
  EXPECT_EQ(line.at("confusion").dump(), "[[2,0],[0,0]]");
}

// A line does not grow with the number of ranks.
TEST_F(RunLogTest, OfManyRanksTheSlowestAreWritten) {
  RunLog log(run_, {});
  std::size_t longest = 0;
  for (const std::size_t ranks : {33U, 4096U}) {
    TrainRecord record{.step = 1};
    record.sampled = {20, std::vector<PhaseTotals>(ranks)};
    for (std::size_t rank = 0; rank < ranks; ++rank) record.sampled.ranks[rank][Phase::forward] = 0.125;
    for (const std::size_t slow : {ranks - 1, ranks - 9}) record.sampled.ranks[slow][Phase::data_wait] = 2;
    log.write(record);
    log.sync();
    const std::string line = lines("metrics.jsonl").back();
    const auto json = nlohmann::json::parse(line).at("ranks");
    const auto of = json.at("of").get<std::vector<std::size_t>>();
    EXPECT_EQ(of.size(), kLoggedRanks / 2);
    EXPECT_TRUE(std::is_sorted(of.begin(), of.end()));
    EXPECT_EQ(of.back(), ranks - 1);
    EXPECT_TRUE(std::find(of.begin(), of.end(), ranks - 9) != of.end());
    EXPECT_EQ(json.at("forward").size(), of.size());
    EXPECT_EQ(json.at("mean").at("forward"), 0.125);
    longest = std::max(longest, line.size());
  }
  EXPECT_LT(longest, 4096U);
}

TEST_F(RunLogTest, StepsAreCollectedAndCutWhereARunResumes) {
  const auto write = [](RunLog& log, std::int64_t from, std::int64_t to) {
    for (std::int64_t step = from; step <= to; ++step) log.write(StepRecord{.step = step, .samples = 0xab, .lr = 0.5});
  };
  {
    RunLog log(run_, {});
    write(log, 1, 10);
    EXPECT_EQ(lines("steps.csv").size(), 1U) << "collected";
    log.flush();
    EXPECT_EQ(lines("steps.csv").size(), 11U);
    write(log, 11, 20);
    log.write(TrainRecord{.step = 20});
    EXPECT_EQ(lines("steps.csv").size(), 21U);
    EXPECT_EQ(lines("steps.csv")[1], "1,00000000000000ab,0000000000000000,0.5,0,0,0000000000000000,0000000000000000");
  }
  append("steps.csv", "21,half a li");
  RunLog log(run_, RunLog::read(run_, {.step = 15, .unfinished = true}));
  write(log, 16, 16);
  log.flush();
  EXPECT_EQ(lines("steps.csv").size(), 17U);
  EXPECT_THAT(lines("steps.csv").back(), ::testing::StartsWith("16,"));
}

// A run of an older version has none, and gets one from where it resumes.
TEST_F(RunLogTest, ARunWithoutStepsResumes) {
  write_run();
  fs::remove(run_ / "steps.csv");
  RunLog log(run_, RunLog::read(run_, {.step = 20}));
  log.write(StepRecord{.step = 21});
  log.flush();
  EXPECT_EQ(lines("steps.csv").size(), 2U);
}

TEST_F(RunLogTest, NumbersComeBackToTheLastBit) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::vector<double> values;
  while (values.size() < 500) {
    const auto value = std::bit_cast<double>(random());
    if (std::isfinite(value)) values.push_back(value);
  }
  {
    RunLog log(run_, {});
    for (const double value : values) {
      log.write(TrainRecord{.step = 1, .loss = value, .lr = value});
      log.write(EpochRecord{.step = 1, .train_loss = value});
    }
  }
  const auto json_lines = lines("metrics.jsonl");
  const auto rows = lines("summary.csv");
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto json = nlohmann::json::parse(json_lines[i]);
    EXPECT_EQ(json.at("loss").get<double>(), values[i]);
    EXPECT_EQ(json.at("lr").get<double>(), values[i]);
    EXPECT_EQ(std::strtod(rows[i + 1].substr(4).c_str(), nullptr), values[i]);
  }
}

TEST_F(RunLogTest, TheSummaryIsReadBack) {
  EXPECT_TRUE(read_summary(run_).empty());
  RunLog log(run_, {});
  EXPECT_TRUE(read_summary(run_).empty());
  log.write(EpochRecord{.epoch = 1, .step = 7, .train_loss = 0.1, .val_loss = 0.2, .val_accuracy = 0.75, .lr = 0.3});
  log.write(EpochRecord{.epoch = 2, .step = 14, .train_loss = std::nan(""), .seconds = 5, .images_per_second = 6.5});
  std::ofstream(run_ / "summary.csv", std::ios::app) << "3,21,0.5,0.";
  const std::vector<EpochRecord> epochs = read_summary(run_);
  ASSERT_EQ(epochs.size(), 2U);
  EXPECT_EQ(epochs[0].step, 7);
  EXPECT_EQ(epochs[0].val_loss, 0.2);
  EXPECT_EQ(epochs[0].val_accuracy, 0.75);
  EXPECT_EQ(epochs[0].lr, 0.3);
  EXPECT_EQ(epochs[0].seconds, std::nullopt);
  EXPECT_EQ(epochs[1].epoch, 2);
  EXPECT_TRUE(std::isnan(epochs[1].train_loss));
  EXPECT_EQ(epochs[1].val_accuracy, std::nullopt);
  EXPECT_EQ(epochs[1].images_per_second, 6.5);
  std::ofstream(run_ / "summary.csv") << "epoch,loss\n1,2\n";
  EXPECT_THROW((void)read_summary(run_), Error);
}

TEST_F(RunLogTest, WhatIsNotFiniteIsStillAReadableLine) {
  RunLog log(run_, {});
  log.write(TrainRecord{.step = 1, .loss = std::nan("")});
  log.write(EpochRecord{.epoch = 1, .step = 1, .train_loss = std::numeric_limits<double>::infinity()});
  EXPECT_TRUE(nlohmann::json::parse(lines("metrics.jsonl")[0]).at("loss").is_null());
  EXPECT_THAT(lines("summary.csv")[1], HasSubstr("1,1,inf,"));
}

TEST_F(RunLogTest, ANewRunBeginsAnew) {
  write_run();
  const RunLog log(run_, {});
  EXPECT_THAT(lines("metrics.jsonl"), IsEmpty());
  EXPECT_THAT(lines("summary.csv"), ElementsAre(kSummaryHeader));
}

TEST_F(RunLogTest, ResumingCutsWhatLiesBeyondTheStep) {
  const std::vector<std::int64_t> all = {10, 20, 20, 30, 40, 40};
  for (std::int64_t resumed = 0; resumed <= 45; ++resumed) {
    SCOPED_TRACE(resumed);
    write_run();
    RunLog log(run_, RunLog::read(run_, {.step = resumed}));
    std::vector<std::int64_t> expected;
    for (const std::int64_t step : all) {
      if (step <= resumed) expected.push_back(step);
    }
    EXPECT_EQ(steps(), expected);
    EXPECT_EQ(lines("summary.csv").size(), static_cast<std::size_t>(1 + (resumed >= 20) + (resumed >= 40)));
    log.write(TrainRecord{.step = 50, .epoch = 3});
    log.write(EpochRecord{.epoch = 3, .step = 60});
    expected.push_back(50);
    EXPECT_EQ(steps(), expected);
    EXPECT_THAT(lines("summary.csv").front(), kSummaryHeader);
    EXPECT_THAT(lines("summary.csv").back(), HasSubstr("3,60,"));
    EXPECT_EQ(std::distance(fs::directory_iterator(run_), fs::directory_iterator()), 3) << "a temporary file is left";
  }
}

TEST_F(RunLogTest, AnEvaluationThatWasNotFinishedIsWrittenAgain) {
  for (const std::int64_t step : {10, 20, 30, 40}) {
    SCOPED_TRACE(step);
    write_run();
    EXPECT_EQ(RunLog::read(run_, {.step = step}).epoch_logged, step == 20 || step == 40);
    const RunLog::Kept kept = RunLog::read(run_, {.step = step, .unfinished = true});
    EXPECT_FALSE(kept.epoch_logged);
    const RunLog log(run_, kept);
    const std::vector<std::int64_t> left = steps();
    EXPECT_EQ(std::count(left.begin(), left.end(), step), 1) << "the line of training stays, that of evaluation not";
    EXPECT_EQ(lines("summary.csv").size(), static_cast<std::size_t>(1 + (step > 20)));
  }
}

// Reading must not change the logs, because a run may still be rejected afterwards.
TEST_F(RunLogTest, ReadingWritesNothing) {
  write_run();
  const auto bytes = [&] {
    return read_text(run_ / "metrics.jsonl", ExitCode::internal) + read_text(run_ / "summary.csv", ExitCode::internal);
  };
  const std::string before = bytes();
  (void)RunLog::read(run_, {.step = 10});
  EXPECT_EQ(bytes(), before);
}

TEST_F(RunLogTest, ResumingWithoutFilesBeginsThem) {
  const RunLog log(run_, RunLog::read(run_, {.step = 100}));
  EXPECT_THAT(lines("metrics.jsonl"), IsEmpty());
  EXPECT_THAT(lines("summary.csv"), ElementsAre(kSummaryHeader));
}

TEST_F(RunLogTest, AHalfWrittenLastLineIsCutWhereverItEnds) {
  for (const char* name : {"metrics.jsonl", "summary.csv"}) {
    write_run();
    const std::string good = read_text(run_ / name, ExitCode::internal);
    const std::size_t last_line = good.rfind('\n', good.size() - 2) + 1;
    for (std::size_t size = last_line; size < good.size(); ++size) {
      fs::resize_file(run_ / name, size);
      const RunLog log(run_, RunLog::read(run_, {.step = 100}));
      EXPECT_EQ(read_text(run_ / name, ExitCode::internal), good.substr(0, last_line)) << size;
      File(run_ / name, File::Mode::create, ExitCode::internal).write(good);
    }
  }
}

TEST_F(RunLogTest, EvenAHalfWrittenHeaderIsForgiven) {
  { const RunLog log(run_, {}); }
  fs::resize_file(run_ / "summary.csv", 10);
  const RunLog log(run_, RunLog::read(run_, {.step = 5}));
  EXPECT_THAT(lines("summary.csv"), ElementsAre(kSummaryHeader));
}

TEST_F(RunLogTest, DamagedLinesAreLeftOutWithAWarning) {
  write_run();
  append("metrics.jsonl", "garbage\n[1]\n{\"step\": \"2\"}\n{\"epoch\": 2}\n\n{\"step\": 41}\n");
  append("summary.csv", "garbage\n1,x,,,,,,\n3,41,1,1,1,1,1,1\n");
  ::testing::internal::CaptureStderr();
  const RunLog log(run_, RunLog::read(run_, {.step = 41}));
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(warnings, HasSubstr("metrics.jsonl: skipped 5 damaged lines"));
  EXPECT_THAT(warnings, HasSubstr("summary.csv: skipped 2 damaged lines"));
  EXPECT_THAT(steps(), ElementsAre(10, 20, 20, 30, 40, 40, 41));
  EXPECT_EQ(lines("summary.csv").size(), 4);
}

TEST_F(RunLogTest, ASummaryOfOtherColumnsIsNotTouched) {
  write_run();
  File(run_ / "summary.csv", File::Mode::create, ExitCode::internal).write("epoch,loss\n1,2\n");
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { const RunLog log(run_, RunLog::read(run_, {.step = 10})); }),
              HasSubstr("summary.csv: unexpected columns; move the file away"));
  EXPECT_THAT(lines("summary.csv"), ElementsAre("epoch,loss", "1,2"));
}

TEST_F(RunLogTest, AFullOrUnwritableFolderIsAnError) {
  EXPECT_EQ(run_in_child([&] {
              RunLog log(run_, {});
              std::signal(SIGXFSZ, SIG_IGN);  // makes write() fail with EFBIG, similar to ENOSPC
              const rlimit nothing{0, 0};
              if (::setrlimit(RLIMIT_FSIZE, &nothing) != 0) throw std::runtime_error("cannot set the limit");
              log.write(TrainRecord{});  // later, if that is possible
              EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { log.sync(); }),
                          HasSubstr("metrics.jsonl: File too large"));
              EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { const RunLog other(run_, {}); }),
                          AllOf(HasSubstr("summary.csv"), HasSubstr("File too large")));
              ::_exit(::testing::Test::HasFailure() ? 1 : 0);
            }),
            0);
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { const RunLog other("/proc/none", {}); }),
              HasSubstr("cannot create the folder /proc/none: "));
  fs::remove(run_ / "metrics.jsonl");
  fs::create_directory(run_ / "metrics.jsonl");
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { const RunLog other(run_, {}); }),
              HasSubstr("metrics.jsonl: Is a directory"));
}

}  // namespace
}  // namespace ddp
