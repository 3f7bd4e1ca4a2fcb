#include "data/sources/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "data/pipeline/normalization.h"
#include "data/sources/memory_dataset.h"
#include "unit/data/files.h"

namespace ddp {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Catalog, OpensGlyphsWithoutAnyFile) {
  const DataSets data = open_dataset("glyphs", "/nowhere", 30, 0, 2);
  EXPECT_EQ(data.train->size(), 30);
  EXPECT_EQ(data.test->size(), 10000);
  EXPECT_EQ(data.train->name(), "glyphs");
}

TEST(Catalog, AnUnknownNameSuggestsTheNearestAndListsAll) {
  EXPECT_THAT(error_of(ExitCode::usage, [] { open_dataset("fashion-mnits", "data", 0, 0, 1); }),
              AllOf(HasSubstr("'fashion-mnits'"), HasSubstr("did you mean 'fashion-mnist'"),
                    HasSubstr("glyphs, mnist, fashion-mnist, cifar10, cifar100, idx, folder")));
  EXPECT_THAT(error_of(ExitCode::usage, [] { open_dataset("imagenet21k", "data", 0, 0, 1); }),
              testing::Not(HasSubstr("did you mean")));
}

TEST(Catalog, ANegativeLimitIsAUsageError) {
  EXPECT_THAT(error_of(ExitCode::usage, [] { open_dataset("glyphs", "data", -1, 0, 1); }), HasSubstr("--train-limit"));
  EXPECT_THAT(error_of(ExitCode::usage, [] { open_dataset("glyphs", "data", 0, -1, 1); }), HasSubstr("--test-limit"));
}

TEST(Catalog, AMissingFolderIsADataError) {
  EXPECT_THAT(error_of(ExitCode::data, [] { open_dataset("mnist", "/nowhere", 0, 0, 1); }),
              AllOf(HasSubstr("/nowhere/mnist"), HasSubstr("launch/get-data mnist /nowhere")));
}

TEST(Catalog, SamplesNeedNoFiles) {
  const DataSets cifar = open_sample("cifar10", "/nowhere", 25, 1);
  EXPECT_EQ(cifar.train->size(), 25);
  EXPECT_EQ(cifar.train->shape(), (Shape{3, 32, 32}));
  EXPECT_EQ(cifar.train->classes(), 10);
  EXPECT_EQ(cifar.test->size(), 1);
  EXPECT_EQ(open_sample("cifar100", "/nowhere", 25, 1).train->classes(), 100);
  EXPECT_EQ(open_sample("glyphs", "/nowhere", 7, 1).train->size(), 7);
  // The number of classes of a missing folder is unknown.
  EXPECT_THAT(error_of(ExitCode::data, [] { open_sample("folder", "/nowhere", 7, 1); }), HasSubstr("/nowhere"));
  EXPECT_THAT(error_of(ExitCode::usage, [] { open_sample("cifar", "/nowhere", 7, 1); }), HasSubstr("cifar10"));
}

TEST(Catalog, EachNameReadsItsOwnFolder) {
  const TemporaryFolder folder;
  for (const std::string name : {"mnist", "fashion-mnist"}) {
    const Bytes pixels = random_bytes(std::size_t{3} * 784, name.size());
    const Bytes labels = {1, 2, static_cast<std::uint8_t>(name.size() % 10)};
    for (const std::string half : {"train", "t10k"}) {
      write_file(folder.path() / name / (half + "-images-idx3-ubyte"), idx_file(std::array{3U, 28U, 28U}, pixels));
      write_file(folder.path() / name / (half + "-labels-idx1-ubyte"), idx_file(std::array{3U}, labels));
    }
  }
  for (const std::string name : {"mnist", "fashion-mnist"}) {
    const DataSets data = open_dataset(name, folder.path().string(), 0, 2, 1);
    EXPECT_EQ(data.train->name(), name);
    EXPECT_EQ(data.train->size(), 3);
    EXPECT_EQ(data.test->size(), 2);
    EXPECT_EQ(data.train->label(2), static_cast<int>(name.size() % 10));
  }
}

TEST(Normalization, MatchesADirectComputationPerChannel) {
  const Shape shape = {3, 5, 4};
  const std::size_t count = 11;
  const Bytes pixels = random_bytes(count * shape.size(), 8);
  const Normalization result = measure_normalization(MemoryDataset("tiny", shape, 2, pixels, Bytes(count)));
  ASSERT_EQ(result.mean.size(), 3U);
  ASSERT_EQ(result.deviation.size(), 3U);
  for (std::size_t channel = 0; channel < 3; ++channel) {
    std::vector<double> values;
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      if (i / 20 % 3 == channel) values.push_back(pixels[i] / 255.0);
    }
    double mean = 0;
    for (const double value : values) mean += value / static_cast<double>(values.size());
    double variance = 0;
    for (const double value : values) variance += (value - mean) * (value - mean) / static_cast<double>(values.size());
    EXPECT_FLOAT_EQ(result.mean[channel], static_cast<float>(mean));
    EXPECT_FLOAT_EQ(result.deviation[channel], static_cast<float>(std::sqrt(variance)));
  }
}

TEST(Normalization, AConstantChannelIsNotDividedByZero) {
  const Shape shape = {1, 2, 2};
  const Normalization result = measure_normalization(MemoryDataset("flat", shape, 1, Bytes(8, 51), Bytes(2)));
  EXPECT_FLOAT_EQ(result.mean[0], 0.2F);
  EXPECT_EQ(result.deviation[0], 1.0F);
}

}  // namespace
}  // namespace ddp
