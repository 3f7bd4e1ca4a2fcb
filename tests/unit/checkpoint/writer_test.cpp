#include "checkpoint/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>
#include <set>

#include "base/file.h"
#include "checkpoint/layout.h"
#include "checkpoint/reader.h"
#include "support/child.h"
#include "support/errors.h"
#include "support/temporary_folder.h"
#include "unit/checkpoint/sample.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::vector<std::int64_t> steps_in(const fs::path& run_dir) {
  std::vector<std::int64_t> steps;
  for (const CheckpointFolder& found : list_checkpoints(run_dir)) steps.push_back(found.step);
  return steps;
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

class WriterTest : public ::testing::Test {
 protected:
  fs::path save(CheckpointWriter& writer, std::int64_t step, bool is_best = false) {
    Sample sample(random_, step);
    fs::path saved = writer.save(sample.state, sample.model.views(), sample.optimizer.views());
    if (is_best) writer.note_evaluation(step, {.loss = 1, .accuracy = 0.5}, true);
    return saved;
  }

  TemporaryFolder folder_;
  fs::path run_ = folder_.path() / "runs" / "a run";
  std::uint64_t seed_ = std::random_device()();
  std::mt19937_64 random_{seed_};
  ::testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
};

// Tensors without an average fall back to the model's weights.
TEST_F(WriterTest, TheAverageIsReadInPlaceOfTheWeights) {
  CheckpointWriter writer(run_, 3);
  Sample sample(random_, 5);
  std::vector<TensorView> state(sample.optimizer.views().begin(), sample.optimizer.views().end());
  const std::vector<TensorView> model(sample.model.views().begin(), sample.model.views().end());
  state[0].name = "ema." + model[0].name;
  state[4].name = "ema." + model[4].name;
  (void)writer.save(sample.state, model, state);
  Sample read(random_, 0);
  load_average(*find_checkpoint(run_), "lenet", read.model.views());
  for (std::size_t i = 0; i < model.size(); ++i) {
    const TensorView& expected = i == 0 || i == 4 ? state[i] : model[i];
    EXPECT_EQ(std::memcmp(read.model.views()[i].data, expected.data, expected.elements() * sizeof(float)), 0) << i;
  }
  (void)save(writer, 6);
  EXPECT_THAT(
      error_text(ExitCode::checkpoint, [&] { load_average(*find_checkpoint(run_), "lenet", read.model.views()); }),
      HasSubstr("contains no moving average of the weights"));
}

TEST_F(WriterTest, WhatIsSavedIsFoundAndLoadedBitForBit) {
  CheckpointWriter writer(run_, 3);
  Sample sample(random_, 1234);
  const fs::path saved = writer.save(sample.state, sample.model.views(), sample.optimizer.views());
  EXPECT_EQ(saved, run_ / "checkpoints" / "step-00001234");
  EXPECT_THAT(names_in(saved),
              UnorderedElementsAre("model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST.json"));

  Sample other(random_, 0);
  for (const fs::path& path : {saved, run_ / "latest", run_ / "latest" / "", run_}) {
    const Checkpoint checkpoint = open_checkpoint(path);
    EXPECT_EQ(checkpoint.path,
              path == run_ / "latest" || path == run_ / "latest" / "" ? run_ / "checkpoints" / "step-00001234" : saved);
    EXPECT_EQ(checkpoint.state, sample.state);
    other.model.clear();
    other.optimizer.clear();
    load(checkpoint, "lenet", other.model.views(), other.optimizer.views());
    EXPECT_EQ(other.model.bits(), sample.model.bits());
    EXPECT_EQ(other.optimizer.bits(), sample.optimizer.bits());
    other.model.clear();
    load(checkpoint, "lenet", other.model.views());
    EXPECT_EQ(other.model.bits(), sample.model.bits());
  }
  EXPECT_EQ(find_checkpoint(run_)->state, sample.state);
}

// In weights and optimizer state; the checkpoint written before the divergence is found instead.
TEST_F(WriterTest, NumbersThatAreNotFiniteAreNotLoaded) {
  for (const bool of_model : {true, false}) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      CheckpointWriter writer(run_, 3);
      Sample good(random_, 10);
      writer.save(good.state, good.model.views(), good.optimizer.views());
      Sample bad(random_, 20);
      (of_model ? bad.model : bad.optimizer).values()[40] = value;
      const fs::path saved = writer.save(bad.state, bad.model.views(), bad.optimizer.views());
      EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { (void)open_checkpoint(saved); }),
                  AllOf(HasSubstr(of_model ? "'layer.4'" : "'momentum.4'"), HasSubstr("non-finite values")));
      EXPECT_EQ(find_checkpoint(run_)->state.step, 10);
      fs::remove_all(run_);
    }
  }
}

TEST_F(WriterTest, TheSameCheckpointIsTheSameBytes) {
  Sample sample(random_, 5);
  std::vector<std::string> bytes;
  for (const char* name : {"one", "two"}) {
    CheckpointWriter writer(run_ / name, 1);
    const fs::path saved = writer.save(sample.state, sample.model.views(), sample.optimizer.views());
    bytes.emplace_back();
    for (const std::string& file : names_in(saved)) bytes.back() += read_bytes(saved / file);
  }
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST_F(WriterTest, ARunWithoutCheckpointsHasNone) {
  EXPECT_FALSE(find_checkpoint(run_).has_value());
  const CheckpointWriter writer(run_, 1);
  EXPECT_FALSE(find_checkpoint(run_).has_value());
}

TEST_F(WriterTest, TheNewestAndTheBestStay) {
  CheckpointWriter writer(run_, 2);
  for (const std::int64_t step : {10, 20, 30}) save(writer, step, /*is_best=*/step == 10);
  EXPECT_THAT(steps_in(run_), ElementsAre(30, 20, 10));
  save(writer, 40);
  EXPECT_THAT(steps_in(run_), ElementsAre(40, 30, 10));
  EXPECT_EQ(fs::read_symlink(run_ / "latest"), "checkpoints/step-00000040");
  EXPECT_EQ(fs::read_symlink(run_ / "best"), "checkpoints/step-00000010");
  save(writer, 50, /*is_best=*/true);
  EXPECT_THAT(steps_in(run_), ElementsAre(50, 40));
  EXPECT_EQ(open_checkpoint(run_ / "best").state.step, 50);
  EXPECT_THAT(names_in(run_), UnorderedElementsAre("latest", "best", "checkpoints"));
  EXPECT_EQ(names_in(run_ / "checkpoints").size(), 2);
}

TEST_F(WriterTest, ARunFolderCanBeMoved) {
  CheckpointWriter writer(run_, 2);
  save(writer, 10, /*is_best=*/true);
  const fs::path moved = folder_.path() / "moved";
  fs::rename(run_, moved);
  EXPECT_EQ(open_checkpoint(moved / "best").state.step, 10);
}

TEST_F(WriterTest, StepsSortAsNumbers) {
  CheckpointWriter writer(run_, 3);
  for (const std::int64_t step : {99'999'999, 100'000'000, 1'000'000'000}) save(writer, step);
  EXPECT_THAT(steps_in(run_), ElementsAre(1'000'000'000, 100'000'000, 99'999'999));
  fs::create_directory(run_ / "checkpoints" / "step-1");
  fs::create_directory(run_ / "checkpoints" / "step-00000001x");
  fs::create_directory(run_ / "checkpoints" / "notes");
  EXPECT_EQ(steps_in(run_).size(), 3);
}

TEST_F(WriterTest, ASecondCheckpointOfAStepTakesTheFirstOnesPlace) {
  CheckpointWriter writer(run_, 2);
  save(writer, 10);
  Sample sample(random_, 10);
  writer.save(sample.state, sample.model.views(), sample.optimizer.views());
  EXPECT_THAT(names_in(run_ / "checkpoints"), UnorderedElementsAre("step-00000010"));
  EXPECT_EQ(find_checkpoint(run_)->state, sample.state);
}

// They belong to another run; whoever opens the folder decides what happens to them.
TEST_F(WriterTest, CheckpointsOfLaterStepsStay) {
  CheckpointWriter writer(run_, 1);
  for (const std::int64_t step : {10, 20, 30}) save(writer, step, /*is_best=*/step == 20);
  CheckpointWriter second(run_, 1);
  save(second, 5);
  save(second, 15);
  EXPECT_THAT(steps_in(run_), ElementsAre(30, 20, 15));
  EXPECT_EQ(open_checkpoint(run_ / "best").state.step, 20);
}

TEST_F(WriterTest, AnEvaluationIsNotedBesideItsCheckpoint) {
  CheckpointWriter writer(run_, 1);
  const fs::path saved = save(writer, 10);
  EXPECT_FALSE(read_evaluation(saved).has_value());
  const Evaluation found{.loss = 0.1 + 0.2, .accuracy = 2.0 / 3};
  writer.note_evaluation(10, found, false);
  EXPECT_EQ(read_evaluation(saved), found);
  EXPECT_FALSE(fs::exists(run_ / "best"));
  EXPECT_EQ(open_checkpoint(saved).state.step, 10);
  // Noting an evaluation of a missing checkpoint must not create anything.
  writer.note_evaluation(20, found, true);
  EXPECT_FALSE(fs::exists(fs::symlink_status(run_ / "best")));
  const std::string good = read_bytes(saved / "evaluation.json");
  ::testing::internal::CaptureStderr();
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    write_bytes(saved / "evaluation.json", with_flipped_bit(good, bit));
    EXPECT_FALSE(read_evaluation(saved).has_value()) << bit;
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    write_bytes(saved / "evaluation.json", good.substr(0, size));
    EXPECT_FALSE(read_evaluation(saved).has_value()) << size;
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("the checkpoint is treated as not evaluated"));
  writer.note_evaluation(10, {.loss = std::nan(""), .accuracy = 0.5}, false);
  EXPECT_TRUE(std::isnan(read_evaluation(saved)->loss));
}

TEST_F(WriterTest, LeftoversAreRemovedAtTheNextStart) {
  {
    CheckpointWriter writer(run_, 3);
    save(writer, 10);
    save(writer, 20);
  }
  const fs::path folder = run_ / "checkpoints";
  fs::create_directory(folder / ".tmp-step-00000030");
  write_bytes(folder / ".tmp-step-00000030" / "model.safetensors", "half");
  fs::create_symlink("nowhere", run_ / ".tmp-latest");
  fs::copy(folder / "step-00000010", folder / ".replaced-step-00000010");    // the new one was moved into place
  fs::rename(folder / "step-00000020", folder / ".replaced-step-00000020");  // the new one was not
  EXPECT_EQ(find_checkpoint(run_)->state.step, 20);
  const CheckpointWriter next(run_, 3);
  EXPECT_THAT(names_in(folder), UnorderedElementsAre("step-00000010", "step-00000020"));
  EXPECT_THAT(names_in(run_), UnorderedElementsAre("latest", "checkpoints"));
}

TEST_F(WriterTest, AFailedSaveLeavesEverythingAsItWas) {
  CheckpointWriter writer(run_, 1);
  save(writer, 10, /*is_best=*/true);
  std::vector<std::string> actions;
  writer.set_action_hook([&](std::string_view action) { actions.emplace_back(action); });
  save(writer, 10);
  const auto before = names_in(run_ / "checkpoints");
  const auto in_place = std::find(actions.begin(), actions.end(), "sync parent");
  ASSERT_NE(in_place, actions.end());
  for (auto failing = actions.begin(); failing != in_place; ++failing) {
    writer.set_action_hook([&](std::string_view action) {
      if (action == *failing) throw Error(ExitCode::checkpoint, "no space at " + *failing);
    });
    const std::int64_t step = failing->find("aside") == std::string::npos && *failing != "remove .replaced" ? 20 : 10;
    EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { save(writer, step); }), HasSubstr(*failing));
    EXPECT_EQ(names_in(run_ / "checkpoints"), before) << *failing;
    EXPECT_EQ(open_checkpoint(run_ / "latest").state.step, 10);
    EXPECT_EQ(open_checkpoint(run_ / "best").state.step, 10);
  }
}

TEST_F(WriterTest, ARunFolderThatCannotBeWrittenIsAnErrorAtTheStart) {
  fs::create_directories(run_.parent_path());
  write_bytes(run_, "a file where the folder should be");
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { const CheckpointWriter writer(run_, 1); }),
              AllOf(HasSubstr(run_.string()), HasSubstr("Not a directory")));
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { const CheckpointWriter writer("/proc/no", 1); }),
              HasSubstr("cannot create the folder /proc/no/checkpoints: "));
  EXPECT_THAT(error_text(ExitCode::usage, [&] { const CheckpointWriter writer("/proc/no", 0); }),
              HasSubstr("--keep-checkpoints is 0"));
}

TEST_F(WriterTest, AFolderWithoutPermissionIsAnErrorAtTheStart) {
  const fs::path checkpoints = run_ / "checkpoints";
  fs::create_directories(checkpoints);
  const fs::path message = folder_.path() / "message";
  File file(message, File::Mode::create, ExitCode::checkpoint);
  for (const fs::path& path : {checkpoints, run_, run_.parent_path(), folder_.path()}) {
    fs::permissions(path, static_cast<fs::perms>(0555));
  }
  EXPECT_EQ(run_in_child([&] {
              // The superuser may write anywhere, so become an ordinary user.
              if (::geteuid() == 0 && ::setuid(65534) != 0) throw std::runtime_error("cannot become nobody");
              file.write(error_text(ExitCode::checkpoint, [&] { const CheckpointWriter writer(run_, 1); }));
            }),
            0);
  EXPECT_THAT(read_bytes(message), HasSubstr("checkpoints/.tmp-probe: Permission denied; "));
  EXPECT_THAT(read_bytes(message), AnyOf(HasSubstr("check the permissions"), HasSubstr("this container runs as user")));
  for (const fs::path& path : {folder_.path(), run_.parent_path(), run_, checkpoints}) {
    fs::permissions(path, fs::perms::owner_all);
  }
}

TEST_F(WriterTest, AFullDiskLeavesTheOldCheckpointsAndNoTemporaryFiles) {
  CheckpointWriter writer(run_, 1);
  save(writer, 10);
  const std::uintmax_t largest = fs::file_size(run_ / "latest" / "model.safetensors");
  for (const std::uintmax_t limit : {std::uintmax_t{0}, std::uintmax_t{1}, largest / 2, largest - 1}) {
    EXPECT_EQ(run_in_child([&] {
                std::signal(SIGXFSZ, SIG_IGN);  // so that write() fails with EFBIG, as it does with ENOSPC
                const rlimit file_size{limit, limit};
                if (::setrlimit(RLIMIT_FSIZE, &file_size) != 0) throw std::runtime_error("cannot set the limit");
                const std::string text = error_text(ExitCode::checkpoint, [&] { save(writer, 20); });
                ::_exit(text.find("File too large; raise the file size limit") == std::string::npos ? 1 : 42);
              }),
              42);
    EXPECT_THAT(names_in(run_ / "checkpoints"), UnorderedElementsAre("step-00000010"));
    EXPECT_EQ(find_checkpoint(run_)->state.step, 10);
  }
}

TEST_F(WriterTest, LinksThatCannotBeMadeCostOnlyAWarning) {
  CheckpointWriter writer(run_, 1);
  fs::create_directories(run_ / "latest" / "in the way");
  ::testing::internal::CaptureStderr();
  save(writer, 10);
  save(writer, 20);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("warning: checkpoint step-00000010 is written, but: "), HasSubstr("a run/latest")));
  EXPECT_THAT(steps_in(run_), ElementsAre(20)) << "older ones are removed all the same";
}

}  // namespace
}  // namespace ddp
