#include "sweep/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/file.h"
#include "support/errors.h"
#include "support/temporary_folder.h"

namespace ddp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ChildProcess::End wait_for(ChildProcess& child) {
  for (int i = 0; i < 3000; ++i) {
    if (const auto end = child.ended()) return *end;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ADD_FAILURE() << "the process does not end";
  return {};
}

TEST(ChildProcess, ReportsExitCodesAndSignals) {
  TemporaryFolder folder;
  ChildProcess three({.arguments = {"/bin/sh", "-c", "echo said; exit 3"},
                      .environment = {},
                      .output = folder.path() / "out",
                      .cpus = {}});
  EXPECT_EQ(wait_for(three).code, 3);
  EXPECT_EQ(read_text(folder.path() / "out", ExitCode::internal), "said\n");
  ChildProcess sleeper(
      {.arguments = {"/bin/sleep", "100"}, .environment = {}, .output = folder.path() / "out", .cpus = {}});
  EXPECT_FALSE(sleeper.ended());
  sleeper.signal(SIGTERM);
  EXPECT_EQ(wait_for(sleeper).signal, SIGTERM);
  ChildProcess missing(
      {.arguments = {"/no/such/program"}, .environment = {}, .output = folder.path() / "out", .cpus = {}});
  EXPECT_EQ(wait_for(missing).code, 127);
}

TEST(ChildProcess, DoesNotInheritALauncher) {
  TemporaryFolder folder;
  ::setenv("OMPI_COMM_WORLD_RANK", "3", 1);
  ChildProcess child(
      {.arguments = {"/usr/bin/env"}, .environment = {{"ADDED", "yes"}}, .output = folder.path() / "out", .cpus = {}});
  EXPECT_EQ(wait_for(child).code, 0);
  ::unsetenv("OMPI_COMM_WORLD_RANK");
  const std::string text = read_text(folder.path() / "out", ExitCode::internal);
  EXPECT_THAT(text, HasSubstr("ADDED=yes\n"));
  EXPECT_THAT(text, Not(HasSubstr("OMPI_COMM_WORLD_RANK")));
  EXPECT_TRUE(is_of_launcher("PMIX_RANK"));
  EXPECT_TRUE(is_of_launcher("SLURM_PROCID"));
  EXPECT_FALSE(is_of_launcher("SLURM_JOB_ID"));
  EXPECT_FALSE(is_of_launcher("CUDA_VISIBLE_DEVICES"));
}

TEST(ChildProcess, IsKilledWithItsObject) {
  TemporaryFolder folder;
  {
    ChildProcess child({.arguments = {"/bin/sh", "-c", "sleep 1; echo late"},
                        .environment = {},
                        .output = folder.path() / "out",
                        .cpus = {}});
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_EQ(read_text(folder.path() / "out", ExitCode::internal), "");
}

TEST(ChildProcess, AnOutputThatCannotBeOpenedIsAnError) {
  EXPECT_THAT(
      error_text(ExitCode::checkpoint,
                 [] {
                   const ChildProcess child(
                       {.arguments = {"/bin/true"}, .environment = {}, .output = "/no/such/folder/out", .cpus = {}});
                 }),
      HasSubstr("/no/such/folder/out"));
}

}  // namespace
}  // namespace ddp
