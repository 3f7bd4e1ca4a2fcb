#include "job/launch/segments.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/host.h"
#include "support/errors.h"
#include "support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

Environment started_with(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

// More ranks than any machine has memory for.
TEST(Segments, TooLittleRoomIsOneLineOfTheFirstRank) {
  const std::string ranks = "2000000000";
  const auto refusal = error_text(ExitCode::preflight, [&] {
    check_room(started_with({{"OMPI_COMM_WORLD_LOCAL_SIZE", ranks}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}), "/");
  });
  EXPECT_THAT(refusal, AllOf(HasSubstr("/ has "), HasSubstr(" free, and 2000000000 ranks on this host need about"),
                             HasSubstr("--shm-size 1g")));
  check_room(started_with({{"OMPI_COMM_WORLD_LOCAL_SIZE", ranks}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}}), "/");
  check_room(started_with({{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}), "/");
  check_room(started_with({}), "/");
  check_room(started_with({{"OMPI_COMM_WORLD_LOCAL_SIZE", ranks}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}), "/nowhere");
  for (const char* transports : {"self,tcp", "^vader"}) {
    check_room(
        started_with(
            {{"OMPI_COMM_WORLD_LOCAL_SIZE", ranks}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_MCA_btl", transports}}),
        "/");
  }
}

TEST(Segments, ThoseThatNobodyHasMappedAreRemoved) {
  if (pid_namespace() != "pid:[4026531836]") GTEST_SKIP() << "in a container nothing is removed";
  const TemporaryFolder folder;
  const std::string user = std::to_string(::geteuid());
  const std::string other_user = std::to_string(::geteuid() + 1);
  const auto put = [&](const std::string& name) {
    replace_file(folder.path() / name, std::string(4096, 'x'), ExitCode::internal);
    return folder.path() / name;
  };
  const fs::path used = put(fmt::format("vader_segment.{}.{}.1a2b0001.0", host_name(), user));
  const fs::path abandoned = put(fmt::format("vader_segment.{}.{}.1a2b0001.1", host_name(), user));
  const fs::path newer = put(fmt::format("sm_segment.{}.{}.1a2b0001.1", host_name(), user));
  const fs::path elsewhere = put(fmt::format("vader_segment.other-host.{}.1a2b0001.0", user));
  const fs::path others = put(fmt::format("vader_segment.{}.{}.1a2b0001.0", host_name(), other_user));
  const fs::path unrelated = put("sem.something");
  const Descriptor file(::open(used.c_str(), O_RDWR | O_CLOEXEC));
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_EQ(remove_abandoned_segments(folder.path(), 3600), "");
  EXPECT_TRUE(fs::exists(abandoned)) << "it may be about to be mapped";
  EXPECT_THAT(remove_abandoned_segments(folder.path(), 0),
              testing::StartsWith("removed 2 segments of killed MPI jobs from "));
  EXPECT_FALSE(fs::exists(abandoned));
  EXPECT_FALSE(fs::exists(newer));
  for (const fs::path& kept : {used, elsewhere, others, unrelated}) EXPECT_TRUE(fs::exists(kept)) << kept;
  ASSERT_EQ(::munmap(memory, 4096), 0);
  remove_abandoned_segments(folder.path(), 0);
  EXPECT_FALSE(fs::exists(used));
}

}  // namespace
}  // namespace ddp
