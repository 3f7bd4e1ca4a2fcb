#include "data/sources/synthetic.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "data/sources/catalog.h"

namespace ddp {
namespace {

std::vector<std::uint8_t> image(const Dataset& data, std::int64_t index) {
  std::vector<std::uint8_t> pixels(data.shape().size());
  EXPECT_EQ(data.read(index, pixels), index);
  return pixels;
}

TEST(Synthetic, HasImagesOfAnySize) {
  const DataSets data = open_dataset("synthetic", "", 100, 30, 1, {.preprocessing = {.shape = {3, 37, 37}}});
  EXPECT_EQ(data.train->shape(), (Shape{3, 37, 37}));
  EXPECT_EQ(data.train->size(), 100);
  EXPECT_EQ(data.test->size(), 30);
  EXPECT_EQ(open_dataset("synthetic", "", 0, 0, 1).train->size(), kSyntheticTrainSize);
  EXPECT_EQ(open_dataset("synthetic", "", 0, 0, 1).test->shape(), (Shape{3, 224, 224}));
}

TEST(Synthetic, ImagesAreAFunctionOfSplitAndIndex) {
  const auto train = make_synthetic(Split::train, {.shape = {3, 24, 24}});
  const auto again = make_synthetic(Split::train, {.shape = {3, 24, 24}, .limit = 50});
  const auto test = make_synthetic(Split::test, {.shape = {3, 24, 24}});
  EXPECT_EQ(image(*train, 17), image(*again, 17));
  EXPECT_NE(image(*train, 17), image(*test, 17));
  EXPECT_NE(image(*train, 17), image(*train, 27));
  std::set<int> labels;
  for (std::int64_t i = 0; i < 20; ++i) labels.insert(train->label(i));
  EXPECT_EQ(labels.size(), 10U);
}

// Samples of one class differ by noise below 64; samples of two classes also differ by their patterns.
TEST(Synthetic, ClassesCanBeTold) {
  const auto data = make_synthetic(Split::train, {.shape = {3, 32, 32}});
  const auto distance = [&](std::int64_t a, std::int64_t b) {
    const std::vector<std::uint8_t> x = image(*data, a);
    const std::vector<std::uint8_t> y = image(*data, b);
    int largest = 0;
    for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(int{x[i]} - int{y[i]}));
    return largest;
  };
  EXPECT_LT(distance(3, 13), 64);
  EXPECT_GT(distance(3, 4), 64);
}

}  // namespace
}  // namespace ddp
