#include "job/launch/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "job/joint_error.h"
#include "job/mpi_session.h"

namespace ddp {
namespace {

using Variables = std::map<std::string, std::string>;
using ::testing::HasSubstr;

Environment environment(const Variables& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(MpiVersion, IsReadFromTheWordsOfEachLibrary) {
  const auto text = [](const std::string& words) {
    const LibraryVersion version = mpi_version_in(words);
    return version.name + " " + version.version;
  };
  EXPECT_EQ(text("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4"), "Open MPI 4.1.4");
  EXPECT_EQ(text("MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7 12:34:45 CDT 2022\n"), "MPICH 4.0.2");
  EXPECT_EQ(text("MVAPICH2 Version : 2.3.7\n"), "MVAPICH2 2.3.7");
  EXPECT_EQ(text("Intel(R) MPI Library 2021.9 for Linux* OS\n"), "Intel(R) MPI Library 2021.9 for Linux* OS");
  EXPECT_EQ(text("unknown"), "MPI unknown");
}

// Returns the error of a process for which MPI reports `mpi_size` ranks.
std::optional<JointError> refusal(const Variables& variables, int mpi_size = 1) {
  try {
    check_before_start(environment(variables));
    check_launch(environment(variables), mpi_size, "Some MPI 1.2");
  } catch (const JointError& error) {
    EXPECT_EQ(error.code(), ExitCode::preflight);
    return error;
  }
  return std::nullopt;
}

TEST(Launcher, CopiesOfAOneRankJobAreRefusedAndTheFirstReports) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, {"PMI_SIZE", "PMI_RANK"}, {"WORLD_SIZE", "RANK"}};
  for (const auto& [size, rank] : cases) {
    const auto first = refusal({{size, "4"}, {rank, "0"}});
    ASSERT_TRUE(first) << size;
    EXPECT_TRUE(first->reporter());
    EXPECT_THAT(first->what(), HasSubstr(size + " is 4, but MPI"));
    EXPECT_THAT(first->what(), HasSubstr("Some MPI 1.2"));
    const auto later = refusal({{size, "4"}, {rank, "2"}});
    ASSERT_TRUE(later) << size;
    EXPECT_FALSE(later->reporter());
    // Ranks known to MPI, or a single process, are fine.
    EXPECT_FALSE(refusal({{size, "4"}, {rank, "2"}}, 4));
    EXPECT_FALSE(refusal({{size, "1"}, {rank, "0"}}));
  }
}

TEST(Launcher, SlurmTasksThatCannotMeetAreRefusedBeforeTheyTry) {
  const Variables task = {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}};
  const auto error = refusal(task);
  ASSERT_TRUE(error);
  EXPECT_FALSE(error->reporter());
  EXPECT_THAT(error->what(), HasSubstr("srun --mpi=pmix"));
  // With PMIx the tasks can connect; if they did not, the check after MPI_Init reports it.
  Variables pmix = task;
  pmix["PMIX_NAMESPACE"] = "slurm.pmix.1.0";
  EXPECT_NO_THROW(check_before_start(environment(pmix)));
  EXPECT_FALSE(refusal(pmix, 2));
  EXPECT_TRUE(refusal(pmix, 1));
}

TEST(Launcher, UnderMpirunASlurmJobAroundItMeansNothing) {
  const Variables variables = {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"},
                               {"SLURM_STEP_ID", "0"},        {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"},
                               {"SLURM_NTASKS", "8"},         {"WORLD_SIZE", "8"},           {"RANK", "3"}};
  EXPECT_FALSE(refusal(variables));
}

TEST(Launcher, WhatMayBeRightIsNotRefused) {
  EXPECT_FALSE(refusal({}));
  EXPECT_FALSE(refusal({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}));
  EXPECT_FALSE(refusal({{"WORLD_SIZE", "4"}}));
  EXPECT_FALSE(refusal({{"OMPI_COMM_WORLD_SIZE", "many"}, {"OMPI_COMM_WORLD_RANK", "0"}}));
  EXPECT_FALSE(refusal({{"PMIX_RANK", "0"}}));
  EXPECT_FALSE(refusal({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}));
}

TEST(Launcher, APmixRankAboveZeroIsNotAlone) {
  const auto error = refusal({{"PMIX_RANK", "1"}});
  ASSERT_TRUE(error);
  EXPECT_TRUE(error->reporter());
}

TEST(Launcher, BindingIsTheDefaultUnlessSomeoneChose) {
  const Variables bound = {{"OMPI_MCA_orte_bound_at_launch", "1"}};
  EXPECT_TRUE(bound_by_default(environment(bound)));
  EXPECT_FALSE(bound_by_default(environment({})));
  for (const char* choice : {"OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_rmaps_base_mapping_policy"}) {
    Variables chosen = bound;
    chosen[choice] = "core";
    EXPECT_FALSE(bound_by_default(environment(chosen))) << choice;
  }
}

}  // namespace
}  // namespace ddp
