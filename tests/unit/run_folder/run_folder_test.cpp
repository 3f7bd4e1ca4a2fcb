#include "run_folder/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "base/file.h"
#include "checkpoint/layout.h"
#include "run_folder/background_save.h"
#include "support/errors.h"
#include "support/temporary_folder.h"
#include "support/without_threads.h"
#include "unit/checkpoint/sample.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RunFolderTest : public ::testing::Test {
 protected:
  static RunFolder::Content content() { return {.config = "lr = 0.1\n", .onnx = "", .keep_checkpoints = 5}; }

  // Writes checkpoints at steps 10, 20 and 30; the best is 20.
  void write_run(const fs::path& run) {
    RunFolder folder(run);
    EXPECT_FALSE(folder.find("none").has_value());
    folder.open(content());
    train(folder, 0);
  }
  void train(RunFolder& folder, std::int64_t done) {
    for (std::int64_t step = done + 10; step <= 30; step += 10) {
      folder.log().write(TrainRecord{.step = step, .epoch = 1});
      Sample sample(random_, step);
      sample.state.epoch_samples = 100;
      if (step == 20) {
        folder.save(sample.state, sample.model.views(), sample.optimizer.views());
      } else {
        folder.save_in_background(sample.state, sample.model.views(), sample.optimizer.views());
      }
      folder.log().write(EvalRecord{.step = step, .epoch = 1});
      folder.evaluated(step, {.loss = 1, .accuracy = step == 20 ? 0.9 : 0.5}, step != 30);
      folder.log().write(EpochRecord{.epoch = step / 10, .step = step});
    }
  }
  std::vector<std::int64_t> steps(const fs::path& run) {
    std::vector<std::int64_t> steps;
    for (const CheckpointFolder& found : list_checkpoints(run)) steps.push_back(found.step);
    return steps;
  }
  // All names in a folder with their content or link target.
  static std::map<std::string, std::string> everything(const fs::path& folder) {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const std::string name = entry.path().lexically_relative(folder);
      all[name] = entry.is_symlink()        ? fs::read_symlink(entry.path()).string()
                  : entry.is_regular_file() ? read_bytes(entry.path())
                                            : "";
    }
    return all;
  }
  fs::path checkpoint(std::int64_t step) const { return run_ / kCheckpointsFolder / step_folder_name(step); }

  TemporaryFolder folder_;
  fs::path run_ = folder_.path() / "run";
  fs::path other_ = folder_.path() / "other";
  std::uint64_t seed_ = std::random_device()();
  std::mt19937_64 random_{seed_};
  ::testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
};

TEST_F(RunFolderTest, TrainingContinuesWhileACheckpointIsWritten) {
  RunFolder folder(run_);
  (void)folder.find("none");
  folder.open(content());
  EXPECT_EQ(folder.last_written(), std::nullopt);
  for (const std::int64_t step : {10, 20}) {
    Sample sample(random_, step);
    const auto model = sample.model.bits();
    const auto optimizer = sample.optimizer.bits();
    folder.save_in_background(sample.state, sample.model.views(), sample.optimizer.views());
    sample.model.clear();
    sample.optimizer.clear();
    EXPECT_EQ(folder.last_written(), step);
    EXPECT_FALSE(folder.retry_due());
    load(open_checkpoint(run_ / "latest"), "lenet", sample.model.views(), sample.optimizer.views());
    EXPECT_EQ(sample.model.bits(), model);
    EXPECT_EQ(sample.optimizer.bits(), optimizer);
  }
}

TEST_F(RunFolderTest, ACheckpointThatCannotBeWrittenIsTriedAgain) {
  for (const bool retry : {true, false}) {
    RunFolder folder(run_);
    (void)folder.find("none");
    RunFolder::Content contents = content();
    contents.retry_saves = retry;
    folder.open(contents);
    Sample sample(random_, 10);
    folder.save_in_background(sample.state, sample.model.views(), sample.optimizer.views());
    EXPECT_EQ(folder.last_written(), 10);
    // Nobody, not even root, can create files below a regular file.
    fs::rename(run_ / kCheckpointsFolder, folder_.path() / "aside");
    write_bytes(run_ / kCheckpointsFolder, "");
    sample.state.step = 20;
    folder.save_in_background(sample.state, sample.model.views(), sample.optimizer.views());
    EXPECT_EQ(folder.last_written(), 10);
    EXPECT_FALSE(folder.retry_due());
    if (!retry) {
      EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { folder.check_held(); }), HasSubstr("step-00000020"));
    } else {
      EXPECT_NO_THROW(folder.check_held());
    }
    EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { folder.finish_saving(); }), HasSubstr("step-00000020"));
    fs::remove(run_ / kCheckpointsFolder);
    fs::rename(folder_.path() / "aside", run_ / kCheckpointsFolder);
    if (retry) {
      for (int tenth = 0; tenth < 50 && !folder.retry_due(); ++tenth) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
      EXPECT_TRUE(folder.retry_due());
    }
    folder.finish_saving();
    EXPECT_FALSE(folder.retry_due());
    EXPECT_EQ(open_checkpoint(run_ / "latest").state.step, 20);
  }
}

TEST_F(RunFolderTest, FindingChangesNothing) {
  write_run(run_);
  const auto before = everything(run_);
  for (const std::string& resume :
       {std::string("none"), std::string("auto"), checkpoint(10).string(), (run_ / "best").string()}) {
    RunFolder folder(run_);
    (void)folder.find(resume);
    auto during = everything(run_);
    EXPECT_EQ(during.erase(kLockFile), 1);
    EXPECT_EQ(during, before) << resume;
  }
  EXPECT_EQ(everything(run_), before);
}

TEST_F(RunFolderTest, ANewRunMovesAnEarlierOneAway) {
  const auto write = [&] {
    write_run(run_);
    fs::create_directory(run_ / "nonfinite-7");
    replace_file(run_ / "nonfinite-7" / "batch.json", "{}", ExitCode::internal);
    replace_file(run_ / "hang-20260301-120000.txt", "a table", ExitCode::internal);
  };
  write();
  const auto before = everything(run_);
  EXPECT_TRUE(before.contains("nonfinite-7/batch.json"));
  for (int n = 1; n <= 2; ++n) {
    write();
    auto moved = everything(run_ / ("earlier-" + std::to_string(n)));
    EXPECT_EQ(moved.size(), before.size());
    if (n == 1) {
      EXPECT_EQ(moved, before);
    }
  }
}

TEST_F(RunFolderTest, ResumingAnOlderStepForks) {
  write_run(run_);
  auto before = everything(run_);
  {
    RunFolder folder(run_);
    EXPECT_EQ(folder.find(checkpoint(10))->state.step, 10);
    folder.open(content());
    EXPECT_THAT(steps(run_), ElementsAre(10));
    EXPECT_EQ(fs::read_symlink(run_ / "latest"), "checkpoints/step-00000010");
    EXPECT_EQ(fs::read_symlink(run_ / "best"), "checkpoints/step-00000010");
    train(folder, 10);
  }
  EXPECT_THAT(steps(run_), ElementsAre(30, 20, 10));
  EXPECT_THAT(steps(run_ / "earlier-1"), ElementsAre(30, 20));
  EXPECT_EQ(open_checkpoint(run_ / "earlier-1" / "latest").state.step, 30);
  EXPECT_EQ(open_checkpoint(run_ / "earlier-1" / "best").state.step, 20);
  // The later part was moved completely, with the logs as they were.
  const auto moved = everything(run_ / "earlier-1");
  for (const char* step : {"step-00000020", "step-00000030"}) {
    for (const char* file : {kModelFile, kOptimizerFile, kStateFile, kManifestFile, kEvaluationFile}) {
      const std::string name = std::string("checkpoints/") + step + "/" + file;
      EXPECT_EQ(moved.at(name), before.at(name));
    }
  }
  for (const char* name : {"metrics.jsonl", "summary.csv", "config.cfg"}) EXPECT_EQ(moved.at(name), before.at(name));
}

// After a start that was killed while moving files, the next start first completes the move, whatever its options.
TEST_F(RunFolderTest, WhatWasBeingMovedIsMovedToTheEnd) {
  write_run(run_);
  const auto before = everything(run_);
  fs::create_directory(run_ / "earlier-1");
  replace_file(run_ / "earlier-1" / ".moving", "all\n", ExitCode::internal);
  for (const char* name : {"latest", "summary.csv"}) fs::rename(run_ / name, run_ / "earlier-1" / name);
  {
    RunFolder folder(run_);
    EXPECT_FALSE(folder.find("auto").has_value());
  }
  EXPECT_EQ(everything(run_ / "earlier-1"), before);
  EXPECT_EQ(everything(run_).size(), before.size() + 1);

  fs::remove_all(run_);
  write_run(run_);
  fs::create_directories(run_ / "earlier-1" / kCheckpointsFolder);
  replace_file(run_ / "earlier-1" / ".moving", "10\n", ExitCode::internal);
  fs::rename(checkpoint(20), run_ / "earlier-1" / kCheckpointsFolder / step_folder_name(20));
  RunFolder folder(run_);
  EXPECT_EQ(folder.find("auto")->state.step, 10);
  EXPECT_THAT(steps(run_ / "earlier-1"), ElementsAre(30, 20));
}

// Training then waits while a checkpoint is written.
TEST_F(RunFolderTest, CheckpointsAreWrittenWithoutAThread) {
  EXPECT_EQ(without_threads([] {
              int written = 0;
              BackgroundSave saves([&](const auto&, auto, auto) { ++written; });
              for (int n = 1; n <= 2; ++n) {
                saves.start({}, {}, {});
                EXPECT_EQ(written, n);
                EXPECT_FALSE(saves.failed());
              }
              BackgroundSave failing([](const auto&, auto, auto) { throw Error(ExitCode::checkpoint, "no space"); });
              failing.start({}, {}, {});
              EXPECT_TRUE(failing.failed());
              EXPECT_THROW(failing.check(), Error);
            }),
            0);
}

// A note that this program has not written moves nothing, and is in nobody's way.
TEST_F(RunFolderTest, ADamagedNoteMovesNothing) {
  write_run(run_);
  fs::create_directory(run_ / "earlier-1");
  replace_file(run_ / "earlier-1" / "metrics.jsonl", "of an earlier run", ExitCode::internal);
  const auto before = everything(run_);
  const fs::path note = run_ / "earlier-1" / ".moving";
  for (const std::string& text : {std::string(), std::string("garbage"), std::string("0"), std::string("10"),
                                  std::string("-1\n"), std::string("10\n20\n"), std::string("+10\n"),
                                  std::string("all"), std::string("99999999999999999999\n"), std::string(1000, '1')}) {
    replace_file(note, text, ExitCode::internal);
    {
      RunFolder folder(run_);
      EXPECT_EQ(folder.find("auto")->state.step, 30) << text;
    }
    fs::remove(note);
    EXPECT_EQ(everything(run_), before) << text;
  }
  fs::create_symlink(run_ / "earlier-1" / "metrics.jsonl", note);
  { const RunFolder folder(run_); }
  fs::remove(note);
  fs::create_directory(note);
  { const RunFolder folder(run_); }
  EXPECT_THAT(steps(run_), ElementsAre(30, 20, 10));
}

// A link in place of RUN/earlier-1 is not entered, and hides no other one.
TEST_F(RunFolderTest, ALinkIsNoEarlierRun) {
  write_run(run_);
  write_run(other_);
  replace_file(other_ / ".moving", "all\n", ExitCode::internal);
  fs::create_directory_symlink(fs::absolute(other_), run_ / "earlier-1");
  { const RunFolder folder(run_); }
  EXPECT_THAT(steps(run_), ElementsAre(30, 20, 10));
  EXPECT_TRUE(fs::exists(other_ / ".moving"));
}

// What was being written when a run was killed does not become part of an earlier run.
TEST_F(RunFolderTest, TemporaryFilesAreNotMoved) {
  write_run(run_);
  fs::create_directory(run_ / "nonfinite-7");
  const auto before = everything(run_);
  for (const fs::path& folder : {run_, run_ / kCheckpointsFolder, checkpoint(20), run_ / "nonfinite-7"}) {
    replace_file(folder / ".tmp-a", "half", ExitCode::internal);
    fs::create_directories(folder / ".tmp-b" / "c");
  }
  fs::create_directory(run_ / "earlier-1");
  replace_file(run_ / "earlier-1" / ".tmp-.moving-1", "al", ExitCode::internal);
  replace_file(run_ / "earlier-1" / ".moving", "all\n", ExitCode::internal);
  {
    RunFolder folder(run_);
    folder.open(content());
  }
  EXPECT_EQ(everything(run_ / "earlier-1"), before);
  for (const auto& entry : fs::recursive_directory_iterator(run_)) {
    EXPECT_FALSE(entry.path().filename().string().starts_with(kTemporaryPrefix)) << entry.path();
  }
}

// The folder contains another run than the one that is resumed.
TEST_F(RunFolderTest, ResumingAnotherRunMovesTheOneHereAway) {
  write_run(run_);
  write_run(other_);
  const auto before = everything(run_);
  const auto others = everything(other_);
  RunFolder folder(run_);
  EXPECT_EQ(folder.find(other_)->state.step, 30);
  folder.open(content());
  EXPECT_EQ(everything(run_ / "earlier-1"), before);
  EXPECT_EQ(everything(other_), others);
  EXPECT_THAT(steps(run_), IsEmpty());
}

TEST_F(RunFolderTest, DamagedCheckpointsOfLaterStepsAreNotDeletedEither) {
  write_run(run_);
  fs::resize_file(checkpoint(30) / kModelFile, 100);
  RunFolder folder(run_);
  EXPECT_EQ(folder.find("auto")->state.step, 20);
  folder.open(content());
  EXPECT_THAT(steps(run_), ElementsAre(20, 10));
  EXPECT_THAT(steps(run_ / "earlier-1"), ElementsAre(30));
}

TEST_F(RunFolderTest, EveryStartRepairsTheLinks) {
  write_run(run_);
  const auto repaired = [&] {
    RunFolder folder(run_);
    EXPECT_EQ(folder.find("auto")->state.step, 30);
    folder.open(content());
    EXPECT_EQ(fs::read_symlink(run_ / "latest"), "checkpoints/step-00000030");
    EXPECT_EQ(fs::read_symlink(run_ / "best"), "checkpoints/step-00000020");
    EXPECT_THAT(steps(run_), ElementsAre(30, 20, 10));
  };
  for (const char* target : {"checkpoints/step-00000010", "checkpoints/step-00000099", "nowhere"}) {
    for (const char* link : {"latest", "best"}) {
      fs::remove(run_ / link);
      fs::create_symlink(target, run_ / link);
      repaired();
      fs::remove(run_ / link);
      repaired();
    }
  }
  // Anything else in place of a link is kept.
  for (const char* link : {"latest", "best"}) {
    fs::remove(run_ / link);
    fs::create_directory(run_ / link);
    replace_file(run_ / link / "notes", "mine", ExitCode::internal);
  }
  repaired();
  EXPECT_TRUE(fs::exists(run_ / "earlier-1" / "latest" / "notes"));
  EXPECT_TRUE(fs::exists(run_ / "earlier-1" / "best" / "notes"));
}

// A save that is killed between its two renames leaves the checkpoint under its temporary name.
TEST_F(RunFolderTest, AReplacedCheckpointComesBackToItsPlace) {
  write_run(run_);
  const fs::path aside = run_ / kCheckpointsFolder / ".replaced-step-00000030";
  fs::rename(checkpoint(30), aside);
  for (const bool bad_one_in_place : {false, true}) {
    {
      RunFolder folder(run_);
      EXPECT_EQ(folder.find("auto")->state.step, 30);
      folder.open(content());
    }
    EXPECT_EQ(open_checkpoint(checkpoint(30)).state.step, 30);
    EXPECT_FALSE(fs::exists(aside));
    if (bad_one_in_place) break;
    fs::rename(checkpoint(30), aside);
    fs::create_directory(checkpoint(30));
    replace_file(checkpoint(30) / kManifestFile, "half", ExitCode::internal);
  }
  EXPECT_EQ(read_bytes(run_ / "earlier-1" / "checkpoints" / "step-00000030" / kManifestFile), "half");
}

TEST_F(RunFolderTest, WhatWasNotFinishedIsSaid) {
  write_run(run_);
  {
    RunFolder folder(run_);
    const auto point = folder.find("auto");
    EXPECT_EQ(point->evaluation, (Evaluation{1, 0.5}));
    EXPECT_TRUE(point->epoch_logged);
  }
  fs::remove(checkpoint(30) / kEvaluationFile);
  RunFolder folder(run_);
  const auto point = folder.find("auto");
  EXPECT_FALSE(point->evaluation.has_value());
  EXPECT_FALSE(point->epoch_logged) << "its row is written again, with the result";
  folder.open(content());
  EXPECT_EQ(read_bytes(run_ / "metrics.jsonl").find("{\"step\":30,\"epoch\":1,\"val_loss\""), std::string::npos);
}

// Other file types in place of a run's files are errors that name the file, and nothing is changed.
TEST_F(RunFolderTest, WhatIsNoFileIsAnErrorAndNothingIsTouched) {
  for (const char* name : {"config.cfg", "metrics.jsonl", "summary.csv"}) {
    for (int kind = 0; kind < 3; ++kind) {
      fs::remove_all(run_);
      write_run(run_);
      fs::remove(run_ / name);
      if (kind == 0) fs::create_directory(run_ / name);
      if (kind == 1) {
        ASSERT_EQ(::mkfifo((run_ / name).c_str(), 0666), 0);
      }
      if (kind == 2) fs::create_symlink("/dev/zero", run_ / name);
      const auto before = everything(run_);
      const bool replaced = kind != 0 && std::string(name) == "config.cfg";
      if (!replaced) {
        RunFolder folder(run_);
        EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { folder.find("auto"); }), HasSubstr((run_ / name).string()));
      } else {
        RunFolder folder(run_);
        (void)folder.find("auto");
        folder.open(content());
        EXPECT_EQ(read_bytes(run_ / name), content().config);
        continue;
      }
      EXPECT_EQ(everything(run_), before);
    }
  }
}

}  // namespace
}  // namespace ddp
