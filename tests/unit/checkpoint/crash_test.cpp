// A process that dies at any instant of a save leaves the earlier checkpoints, or the new one, intact.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>

#include "checkpoint/layout.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "support/child.h"
#include "support/temporary_folder.h"
#include "unit/checkpoint/sample.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;

constexpr int kCrashed = 42;

struct Scenario {
  const char* name;
  std::vector<std::int64_t> before;  // steps of the earlier saves; the first is the best
  std::int64_t step;                 // the step whose save crashes
  bool is_best;
  int keep;
};

void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

std::vector<std::int64_t> good_steps(const fs::path& run_dir) {
  std::vector<std::int64_t> steps;
  for (const CheckpointFolder& found : list_checkpoints(run_dir)) {
    steps.push_back(open_checkpoint(found.path).state.step);  // throws if the checkpoint is damaged
  }
  return steps;
}

class CrashTest : public ::testing::TestWithParam<Scenario> {
 protected:
  // A fresh run with the scenario's earlier checkpoints.
  void prepare() {
    fs::remove_all(run_);
    CheckpointWriter writer(run_, GetParam().keep);
    for (const std::int64_t step : GetParam().before) save(writer, step, step == GetParam().before.front());
  }

  void save(CheckpointWriter& writer, std::int64_t step, bool is_best) {
    Sample sample(random_, step);
    writer.save(sample.state, sample.model.views(), sample.optimizer.views());
    writer.note_evaluation(step, {.loss = 1, .accuracy = 0.5}, is_best);
  }

  // What must hold after a crash, before and after the next process starts and saves.
  void expect_usable(const std::string& when) {
    const Scenario& scenario = GetParam();
    const std::int64_t last = scenario.before.back();
    const auto found = find_checkpoint(run_);
    ASSERT_TRUE(found.has_value()) << when;
    EXPECT_TRUE(found->state.step == last || found->state.step == scenario.step) << when << found->state.step;
    Sample into(random_, 0);
    load(*found, "lenet", into.model.views(), into.optimizer.views());
    EXPECT_GE(good_steps(run_).size(), std::min<std::size_t>(scenario.before.size(), scenario.keep)) << when;

    CheckpointWriter next(run_, scenario.keep);
    for (const fs::path& folder : {run_, run_ / kCheckpointsFolder}) {
      for (const auto& entry : fs::directory_iterator(folder)) {
        EXPECT_FALSE(entry.path().filename().string().starts_with('.')) << when << entry.path();
      }
    }
    EXPECT_EQ(find_checkpoint(run_)->state.step, found->state.step) << when;
    EXPECT_NO_THROW(open_checkpoint(run_ / "latest")) << when;
    EXPECT_NO_THROW(open_checkpoint(run_ / "best")) << when;
    save(next, scenario.step, scenario.is_best);
    EXPECT_EQ(open_checkpoint(run_ / "latest").state.step, scenario.step) << when;
  }

  TemporaryFolder folder_;
  fs::path run_ = folder_.path() / "run";
  std::uint64_t seed_ = std::random_device()();
  std::mt19937_64 random_{seed_};
  ::testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
};

TEST_P(CrashTest, BeforeEachAction) {
  const Scenario& scenario = GetParam();
  prepare();
  std::vector<std::string> actions;
  {
    CheckpointWriter writer(run_, scenario.keep);
    writer.set_action_hook([&](std::string_view action) { actions.emplace_back(action); });
    save(writer, scenario.step, scenario.is_best);
  }
  EXPECT_THAT(actions, Contains("write manifest"));
  EXPECT_THAT(actions, Contains("rename into place"));
  EXPECT_THAT(actions, Contains("move link latest"));
  EXPECT_THAT(actions, Contains("write evaluation"));
  for (std::size_t crash = 0; crash < actions.size(); ++crash) {
    prepare();
    ASSERT_EQ(run_in_child([&] {
                CheckpointWriter writer(run_, scenario.keep);
                std::size_t count = 0;
                writer.set_action_hook([&](std::string_view) {
                  if (count++ == crash) ::_exit(kCrashed);
                });
                save(writer, scenario.step, scenario.is_best);
              }),
              kCrashed);
    expect_usable("crash before '" + actions[crash] + "': ");
  }
}

// A file size limit kills the process during a write, at any byte of any file.
TEST_P(CrashTest, WithinAWrite) {
  const Scenario& scenario = GetParam();
  prepare();
  const std::uintmax_t largest = fs::file_size(run_ / "latest" / kModelFile);
  for (int round = 0; round < 4; ++round) {
    prepare();
    const rlim_t limit = random_() % largest;
    ASSERT_EQ(run_in_child([&] {
                CheckpointWriter writer(run_, scenario.keep);
                std::signal(SIGXFSZ, SIG_DFL);
                const rlimit no_core{0, 0};
                const rlimit file_size{limit, limit};
                if (::setrlimit(RLIMIT_CORE, &no_core) != 0 || ::setrlimit(RLIMIT_FSIZE, &file_size) != 0) {
                  throw std::runtime_error("cannot set the limits");
                }
                save(writer, scenario.step, scenario.is_best);
              }),
              128 + SIGXFSZ);
    expect_usable("crash at byte " + std::to_string(limit) + ": ");
  }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, CrashTest,
                         ::testing::Values(Scenario{"Second", {10}, 20, false, 3},
                                           Scenario{"OnlyOneKept", {10}, 20, true, 1},
                                           Scenario{"OldOnesRemoved", {10, 20, 30}, 40, false, 2},
                                           Scenario{"BestMoves", {10, 20, 30}, 40, true, 2},
                                           Scenario{"SameStepAgain", {10, 20}, 20, false, 2},
                                           Scenario{"SameStepOnlyOneKept", {10}, 10, true, 1}),
                         [](const auto& scenario) { return scenario.param.name; });

}  // namespace
}  // namespace ddp
