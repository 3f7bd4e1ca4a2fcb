#include "data/sources/glyphs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "base/random.h"
#include "data/sources/glyph_shapes.h"

namespace ddp {
namespace {

using Image = std::array<std::uint8_t, kGlyphPixels>;

Image image_of(const Dataset& data, std::int64_t index) {
  Image image;
  data.read(index, image);
  return image;
}

// FNV-1a over the images and labels.
std::uint64_t hash_of(const Dataset& data) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](std::uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (std::int64_t i = 0; i < data.size(); ++i) {
    for (const std::uint8_t pixel : image_of(data, i)) add(pixel);
    add(static_cast<std::uint8_t>(data.label(i)));
  }
  return hash;
}

TEST(Glyphs, AnImageIsAFunctionOfSeedSplitAndIndexAlone) {
  const auto whole = make_glyphs(Split::train, 203, 1, 5);
  for (const int threads : {2, 3, 7}) EXPECT_EQ(hash_of(*make_glyphs(Split::train, 203, threads, 5)), hash_of(*whole));
  Random random(3, 0);
  Image image;
  for (int trial = 0; trial < 50; ++trial) {
    const auto index = static_cast<std::int64_t>(random.below(203));
    draw_glyph(5, Split::train, index, image);
    EXPECT_EQ(image, image_of(*whole, index));
    EXPECT_EQ(glyph_label(5, Split::train, index), whole->label(index));
  }
  const auto part = make_glyphs(Split::train, 40, 1, 5);
  for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ(image_of(*part, i), image_of(*whole, i));
}

// The target accuracies in configurations are valid for exactly these images. A change to a stroke changes the data
// set; then this hash and those accuracies have to be determined again.
TEST(Glyphs, AreTheSameBytesOnEveryMachine) {
  EXPECT_EQ(hash_of(*make_glyphs(Split::train, 1000, 2)), 0xf47bd31ca1205f7eULL);
  EXPECT_EQ(hash_of(*make_glyphs(Split::test, 1000, 2)), 0xf5630862be485a5eULL);
}

TEST(Glyphs, SplitsSeedsAndIndicesDiffer) {
  std::set<Image> seen;
  Image image;
  for (const std::uint64_t seed : {1U, 2U}) {
    for (const Split split : {Split::train, Split::test}) {
      for (std::int64_t index = 0; index < 100; ++index) {
        draw_glyph(seed, split, index, image);
        EXPECT_TRUE(seen.insert(image).second) << "seed " << seed << " index " << index;
      }
    }
  }
}

TEST(Glyphs, HaveTheirFullSizesAndEveryTenHoldEachDigit) {
  const auto test = make_glyphs(Split::test, 0, 2);
  EXPECT_EQ(test->size(), 10000);
  EXPECT_EQ(make_glyphs(Split::test, 20000, 2)->size(), 10000);
  EXPECT_EQ(test->shape(), (Shape{1, 28, 28}));
  EXPECT_EQ(test->classes(), 10);
  int ascending = 0;
  for (std::int64_t block = 0; block < 1000; ++block) {
    std::set<int> digits;
    for (std::int64_t i = 0; i < 10; ++i) digits.insert(test->label(block * 10 + i));
    EXPECT_EQ(digits.size(), 10U);
    ascending += test->label(block * 10) < test->label(block * 10 + 1) ? 1 : 0;
  }
  EXPECT_NEAR(ascending, 500, 80);  // five standard deviations, as the digits are in random order
}

TEST(Glyphs, EveryImageShowsInkOnDarkerGround) {
  const auto data = make_glyphs(Split::test, 2000, 2);
  for (std::int64_t i = 0; i < data->size(); ++i) {
    Image image = image_of(*data, i);
    std::sort(image.begin(), image.end());
    const int ground = image[kGlyphPixels / 4];
    const int ink = image[kGlyphPixels - 15];
    EXPECT_GT(ink, ground + 50) << "image " << i;
    EXPECT_LT(image[kGlyphPixels / 2], 128) << "image " << i << " is mostly ink";
  }
}

TEST(GlyphShapes, LieInTheirBoxAndFillItsHeight) {
  for (int digit = 0; digit < 10; ++digit) {
    const auto styles = glyph_styles(digit);
    ASSERT_GE(styles.size(), 2U);
    for (const GlyphStyle& style : styles) {
      float top = 1;
      float bottom = -1;
      ASSERT_GE(style.count, 1U);
      for (const GlyphStroke& stroke : std::span(style.strokes).first(style.count)) {
        ASSERT_GE(stroke.count, 2U);
        for (const GlyphPoint point : std::span(stroke.points).first(stroke.count)) {
          EXPECT_LE(std::abs(point.x), 0.6F) << "digit " << digit;
          EXPECT_LE(std::abs(point.y), 1.0F) << "digit " << digit;
          top = std::min(top, point.y);
          bottom = std::max(bottom, point.y);
        }
      }
      EXPECT_LT(top, -0.9F) << "digit " << digit;
      EXPECT_GT(bottom, 0.9F) << "digit " << digit;
    }
  }
}

// Softmax regression on pixels in [0, 1], trained with plain stochastic gradient descent.
class SoftmaxRegression {
 public:
  void train(const Dataset& data, int epochs, float rate) {
    std::vector<std::uint32_t> order(static_cast<std::size_t>(data.size()));
    std::iota(order.begin(), order.end(), 0U);
    for (int epoch = 0; epoch < epochs; ++epoch) {
      Random random(1, static_cast<std::uint64_t>(epoch));
      shuffle(order, random);
      for (const std::uint32_t index : order) step(data, index, rate / static_cast<float>(1 + epoch));
    }
  }

  double accuracy(const Dataset& data) const {
    std::int64_t right = 0;
    for (std::int64_t i = 0; i < data.size(); ++i) {
      const auto scores = score(read(data, i));
      right += std::max_element(scores.begin(), scores.end()) - scores.begin() == data.label(i) ? 1 : 0;
    }
    return static_cast<double>(right) / static_cast<double>(data.size());
  }

 private:
  using Pixels = std::array<float, kGlyphPixels>;

  static Pixels read(const Dataset& data, std::int64_t index) {
    const Image image = image_of(data, index);
    Pixels pixels;
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(image[i]) / 255;
    return pixels;
  }

  std::array<float, 10> score(const Pixels& pixels) const {
    std::array<float, 10> scores{};
    for (std::size_t digit = 0; digit < 10; ++digit) {
      scores[digit] = std::inner_product(pixels.begin(), pixels.end(), weights_[digit].begin(), bias_[digit]);
    }
    return scores;
  }

  void step(const Dataset& data, std::int64_t index, float rate) {
    const Pixels pixels = read(data, index);
    std::array<float, 10> gradient = score(pixels);
    const float top = *std::max_element(gradient.begin(), gradient.end());
    for (float& value : gradient) value = std::exp(value - top);
    const float sum = std::accumulate(gradient.begin(), gradient.end(), 0.0F);
    for (float& value : gradient) value /= sum;
    gradient.at(static_cast<std::size_t>(data.label(index))) -= 1;
    for (std::size_t digit = 0; digit < 10; ++digit) {
      const float scale = rate * gradient[digit];
      for (std::size_t i = 0; i < pixels.size(); ++i) weights_[digit][i] -= scale * pixels[i];
      bias_[digit] -= scale;
    }
  }

  std::array<Pixels, 10> weights_{};
  std::array<float, 10> bias_{};
};

// On all 60,000 images, a well trained linear model reaches a test accuracy of about 0.74; here it sees a sixth of
// them. The standard error over 2,000 test images is 0.01, so the bound of 0.82 is far enough from both that and the
// claimed 0.90.
TEST(Glyphs, ALinearModelLearnsThemButPoorly) {
  SoftmaxRegression model;
  model.train(*make_glyphs(Split::train, 10000, 2), 5, 0.02F);
  const double accuracy = model.accuracy(*make_glyphs(Split::test, 2000, 2));
  RecordProperty("accuracy", std::to_string(accuracy));
  EXPECT_GT(accuracy, 0.55);
  EXPECT_LT(accuracy, 0.82);
}

}  // namespace
}  // namespace ddp
