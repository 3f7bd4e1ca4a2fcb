#include "machine/cores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

// A temporary folder of fake system files.
class SystemFiles : public ::testing::Test {
 protected:
  void write(const fs::path& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  double quota() const { return cpu_quota(root_ / "membership", root_ / "mount"); }

  TemporaryFolder temporary_;
  fs::path root_ = temporary_.path();
};

constexpr double kNone = std::numeric_limits<double>::infinity();

TEST(Cores, GatherTheirHardwareThreadsSocketAfterSocket) {
  // Two sockets with two cores of two threads each; as on many machines, the second threads have the highest numbers.
  const std::string machine = "package:2 core:2 pu:2(indexes=2*4:1*2)";
  std::vector<int> all(8);
  std::iota(all.begin(), all.end(), 0);
  const CoreList cores = physical_cores(all, machine);
  EXPECT_EQ(cores, (CoreList{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(physical_cores(std::vector{1, 2, 6}, machine), (CoreList{{1}, {2, 6}}));
}

TEST(Cores, UnknownCpusAreCoresOfTheirOwn) {
  EXPECT_EQ(physical_cores(std::vector{0, 1, 99}, "core:1 pu:2"), (CoreList{{0, 1}, {99}}));
  EXPECT_EQ(physical_cores({}), CoreList{});
}

TEST(Cores, OfThisMachineHoldAllItsCpus) {
  std::vector<int> members;
  for (const std::vector<int>& core : physical_cores(affinity()))
    members.insert(members.end(), core.begin(), core.end());
  std::sort(members.begin(), members.end());
  EXPECT_EQ(members, affinity());
}

TEST_F(SystemFiles, QuotasOfVersion2CountTheEnclosingGroups) {
  write("membership", "0::/job/task\n");
  write("mount/job/task/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), kNone);
  write("mount/job/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 1.5);
  write("mount/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(SystemFiles, AContainersQuotaLiesAtTheMount) {
  write("membership", "0::/../../outer/path\n");
  write("mount/cpu.max", "400000 100000\n");
  EXPECT_EQ(quota(), 4);
}

TEST_F(SystemFiles, QuotasOfVersion1BelongToTheCpuController) {
  write("membership", "9:name=systemd:/\n4:cpu,cpuacct:/box\n3:cpuset:/box\n0::/\n");
  EXPECT_EQ(quota(), kNone);
  write("mount/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
  write("mount/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), kNone);
  write("mount/cpu,cpuacct/box/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(quota(), 2.5);
}

TEST_F(SystemFiles, GarbageIsNoQuota) {
  EXPECT_EQ(quota(), kNone);
  write("membership", "garbage\n::\n0::/x\n");
  write("mount/x/cpu.max", "lots of it\n");
  write("mount/cpu.max", "0 0\n");
  EXPECT_EQ(quota(), kNone);
}

TEST(Affinity, IsReadAndSetForTheCallingThread) {
  const std::vector<int> before = affinity();
  ASSERT_FALSE(before.empty());
  EXPECT_TRUE(std::is_sorted(before.begin(), before.end()));
  std::vector<int> within;
  std::vector<int> inherited;
  bool set = false;
  std::thread([&] {
    set = set_affinity(std::vector{before.back()});
    within = affinity();
    std::thread([&] { inherited = affinity(); }).join();
  }).join();
  EXPECT_TRUE(set);
  EXPECT_EQ(within, std::vector{before.back()});
  EXPECT_EQ(inherited, within);
  EXPECT_EQ(affinity(), before);
  EXPECT_FALSE(set_affinity({}));
}

TEST(CpuLists, AreWrittenInRangesAndReadBack) {
  EXPECT_EQ(format_cpus(std::vector{0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_EQ(format_cpus(std::vector<int>{}), "");
  for (const std::vector<int>& cpus : {std::vector<int>{}, {0}, {3, 4}, {0, 1, 2, 5, 7, 8}, {1023}}) {
    EXPECT_EQ(parse_cpus(format_cpus(cpus)), cpus);
  }
  for (const char* bad : {"x", "1-", ",1", "1;2", "-1", "1-99999999"}) EXPECT_THROW(parse_cpus(bad), Error) << bad;
}

}  // namespace
}  // namespace ddp
