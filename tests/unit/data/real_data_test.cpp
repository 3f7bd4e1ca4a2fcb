// The published data sets, if available: in DDP_DATA_DIR, where launch/get-data puts them, or in a folder next to the
// repository.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "data/pipeline/normalization.h"
#include "data/sources/catalog.h"

namespace ddp {
namespace {

std::string data_folder(const std::string& name) {
  const std::filesystem::path source = DDP_SOURCE_DIR;
  std::vector<std::filesystem::path> candidates = {source / "data", source / ".." / "shared" / "data"};
  if (const char* named = std::getenv("DDP_DATA_DIR")) candidates = {named};
  for (const auto& folder : candidates) {
    for (const auto& place : {folder, folder / "cifar10"}) {
      if (std::filesystem::is_directory(place / name)) return place.string();
    }
  }
  return "";
}

struct Known {
  const char* name;
  // Statistics of the training set, from PyTorch's examples and many papers.
  float mean;
  float deviation;

  friend void PrintTo(const Known& known, std::ostream* out) { *out << known.name; }
};

class RealData : public testing::TestWithParam<Known> {};

TEST_P(RealData, HasThePublishedSizesAndMoments) {
  const Known known = GetParam();
  const std::string folder = data_folder(known.name);
  if (folder.empty()) {
    GTEST_SKIP() << "no " << known.name << " data set: set DDP_DATA_DIR, or run launch/get-data " << known.name;
  }
  const DataSets data = open_dataset(known.name, folder, 0, 0, 1);
  EXPECT_EQ(data.train->size(), 60000);
  EXPECT_EQ(data.test->size(), 10000);
  std::array<int, 10> counts{};
  for (std::int64_t i = 0; i < data.test->size(); ++i) ++counts.at(static_cast<std::size_t>(data.test->label(i)));
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
  const Normalization normalization = measure_normalization(*data.train);
  EXPECT_NEAR(normalization.mean[0], known.mean, 5e-5);
  EXPECT_NEAR(normalization.deviation[0], known.deviation, 5e-5);
}

// The channel moments that papers and programs publish for CIFAR-10. Copies stored as JPEG differ slightly.
TEST(RealCifar10, HasThePublishedSizesAndMoments) {
  const std::string folder = data_folder("cifar-10-batches-bin");
  if (folder.empty()) GTEST_SKIP() << "no cifar10 data set: set DDP_DATA_DIR, or run launch/get-data cifar10";
  const DataSets data = open_dataset("cifar10", folder, 0, 0, 1);
  EXPECT_EQ(data.train->size(), 50000);
  EXPECT_EQ(data.test->size(), 10000);
  std::array<int, 10> counts{};
  for (std::int64_t i = 0; i < data.test->size(); ++i) ++counts.at(static_cast<std::size_t>(data.test->label(i)));
  for (const int count : counts) EXPECT_EQ(count, 1000);
  const Normalization normalization = measure_normalization(*data.train);
  const std::array mean = {0.4914F, 0.4822F, 0.4465F};
  const std::array deviation = {0.2470F, 0.2435F, 0.2616F};
  for (std::size_t channel = 0; channel < 3; ++channel) {
    EXPECT_NEAR(normalization.mean[channel], mean.at(channel), 1e-3);
    EXPECT_NEAR(normalization.deviation[channel], deviation.at(channel), 2e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, RealData,
                         testing::Values(Known{"mnist", 0.1307F, 0.3081F}, Known{"fashion-mnist", 0.2860F, 0.3530F}),
                         [](const auto& parameters) { return std::string(parameters.param.name).substr(0, 7); });

}  // namespace
}  // namespace ddp
