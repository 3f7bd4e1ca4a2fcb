#include "train/plan/plan_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "backend/backend.h"
#include "base/file.h"
#include "model/zoo.h"
#include "support/temporary_folder.h"

namespace ddp {
namespace {

class PlanCacheTest : public testing::Test {
 protected:
  TemporaryFolder temporary_;
  std::filesystem::path folder = temporary_.path() / "plans";
};

TEST_F(PlanCacheTest, FindsWhatWasStoredUnderTheSameKeyOnly) {
  const PlanCache cache(folder);
  EXPECT_FALSE(cache.find("a\n").has_value());
  cache.store("a\n", "plan");
  EXPECT_EQ(cache.find("a\n"), "plan");
  EXPECT_FALSE(cache.find("b\n").has_value());
}

TEST_F(PlanCacheTest, AFileOfAnotherKeyIsNotTaken) {
  const PlanCache cache(folder);
  cache.store("a\n", "plan");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ofstream(entry.path()) << "garbage";
  }
  EXPECT_FALSE(cache.find("a\n").has_value());
}

// After any loss or change, kernels are timed again.
TEST_F(PlanCacheTest, ADamagedFileIsNotTaken) {
  const PlanCache cache(folder);
  const std::string plan = "conv1 nhwc own\nconv2 nhwc winograd\n";
  cache.store("a\n", plan);
  const std::filesystem::path file = std::filesystem::directory_iterator(folder)->path();
  const std::string good = read_text(file, ExitCode::internal);
  for (std::size_t size = 0; size < good.size(); ++size) {
    replace_file(file, good.substr(0, size), ExitCode::internal);
    EXPECT_FALSE(cache.find("a\n").has_value()) << size;
    std::string flipped = good;
    flipped[size] = static_cast<char>(flipped[size] ^ 1);
    replace_file(file, flipped, ExitCode::internal);
    EXPECT_FALSE(cache.find("a\n").has_value()) << size;
  }
  std::filesystem::resize_file(file, std::uintmax_t{100} << 30U);
  EXPECT_FALSE(cache.find("a\n").has_value());
  std::filesystem::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0666), 0);
  EXPECT_FALSE(cache.find("a\n").has_value());
  cache.store("a\n", plan);
  EXPECT_EQ(cache.find("a\n"), plan);
}

TEST_F(PlanCacheTest, AFolderThatCannotBeMadeCostsNothingButTheCache) {
  const PlanCache cache(std::filesystem::path("/proc/no-such-folder"));
  cache.store("a\n", "plan");
  EXPECT_FALSE(cache.find("a\n").has_value());
}

TEST(PlanCacheKey, TellsModelsAndWhatIsTimedApart) {
  const auto backend = make_cpu_backend();
  const Graph graph = make_model("lenet", {1, 28, 28}, 10);
  const auto key = [&](std::int64_t batch) { return PlanCache::key(backend->ops(), make_stages(graph, batch)); };
  EXPECT_EQ(key(64), key(64));
  EXPECT_NE(key(16), key(32));
  // Larger batches are timed with as many samples.
  EXPECT_EQ(key(64), key(65));
  EXPECT_EQ(key(64), key(512));
  EXPECT_NE(key(64), PlanCache::key(backend->ops(), make_stages(make_model("lenet", {1, 32, 32}, 10), 64)));
}

// A new build takes no plan of an older one: the key has a hash of the kernels' sources.
TEST(PlanCacheKey, HasAHashOfTheKernels) {
  const auto backend = make_cpu_backend();
  const std::string key = PlanCache::key(backend->ops(), make_stages(make_model("lenet", {1, 28, 28}, 10), 64));
  EXPECT_THAT(key, testing::ContainsRegex(" kernels-[0-9a-f]{16}\n"));
}

}  // namespace
}  // namespace ddp
