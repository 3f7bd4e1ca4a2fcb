#include "data/pipeline/augmentation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "data/pipeline/mixup.h"
#include "data/pipeline/sample_key.h"
#include "data/sources/memory_dataset.h"
#include "unit/data/files.h"

namespace ddp {
namespace {

constexpr Shape kColour = {3, 9, 12};

std::uint8_t& at(Bytes& pixels, const Shape& shape, std::int64_t c, std::int64_t y, std::int64_t x) {
  return pixels[static_cast<std::size_t>((c * shape.height + y) * shape.width + x)];
}

TEST(Augmentation, RandomRegionsHaveTheSharesAndRatiosOfTheirDefinition) {
  const ImageSize size{500, 375};
  double area = 0;
  double least_ratio = 10;
  double most_ratio = 0;
  double x = 0;
  constexpr int kDraws = 4000;
  for (int i = 0; i < kDraws; ++i) {
    const Region region = random_region(size, sample_key(1, 2, static_cast<std::uint32_t>(i)));
    ASSERT_GE(region.x, 0);
    ASSERT_GE(region.y, 0);
    ASSERT_LE(region.x + region.width, 500);
    ASSERT_LE(region.y + region.height, 375);
    area += region.width * region.height / (500 * 375) / kDraws;
    least_ratio = std::min(least_ratio, region.width / region.height);
    most_ratio = std::max(most_ratio, region.width / region.height);
    x += (region.x + region.width / 2) / 500 / kDraws;
  }
  EXPECT_NEAR(area, 0.437, 0.02);  // torchvision's distribution: uniform in [0.08, 1], minus crops that do not fit
  EXPECT_NEAR(least_ratio, 0.75, 0.01);
  EXPECT_NEAR(most_ratio, 4.0 / 3, 0.02);
  EXPECT_NEAR(x, 0.5, 0.02);
}

TEST(Augmentation, AVeryLongImageGivesItsMiddle) {
  const Region region = random_region({10000, 3}, 5);
  EXPECT_EQ(region.height, 3);
  EXPECT_EQ(region.width, 4);
  EXPECT_EQ(region.x, 4998);
}

TEST(Augmentation, MovingBringsInBlack) {
  const Bytes pixels = random_bytes(kColour.size(), 1);
  for (const auto& [right, down] : {std::pair{2, 3}, {-4, 1}, {0, -2}, {12, 0}, {0, 9}, {-20, -20}, {0, 0}}) {
    Bytes moved = pixels;
    move_image(kColour, right, down, moved);
    for (std::int64_t c = 0; c < 3; ++c) {
      for (std::int64_t y = 0; y < 9; ++y) {
        for (std::int64_t x = 0; x < 12; ++x) {
          const bool inside = y - down >= 0 && y - down < 9 && x - right >= 0 && x - right < 12;
          Bytes before = pixels;
          const int expected = inside ? at(before, kColour, c, y - down, x - right) : 0;
          ASSERT_EQ(at(moved, kColour, c, y, x), expected) << right << ", " << down;
        }
      }
    }
  }
}

// As torch.nn.functional.pad with mode="reflect".
TEST(Augmentation, ReflectedBordersMirrorWhatLiesBesideThem) {
  const Bytes pixels = random_bytes(kColour.size(), 1);
  const auto reflected = [](std::int64_t i, std::int64_t size) {
    if (i < 0) return -i;
    return i < size ? i : 2 * (size - 1) - i;
  };
  for (const auto& [right, down] : {std::pair{2, 3}, {-4, 1}, {0, -2}, {5, 0}, {-5, -4}, {5, 4}, {0, 0}}) {
    Bytes moved = pixels;
    move_image(kColour, right, down, moved);
    reflect_borders(kColour, right, down, moved);
    for (std::int64_t c = 0; c < 3; ++c) {
      for (std::int64_t y = 0; y < 9; ++y) {
        for (std::int64_t x = 0; x < 12; ++x) {
          Bytes before = pixels;
          ASSERT_EQ(at(moved, kColour, c, y, x),
                    at(before, kColour, c, reflected(y - down, 9), reflected(x - right, 12)))
              << right << ", " << down << " at " << x << ", " << y;
        }
      }
    }
  }
}

TEST(Augmentation, MirroringTwiceChangesNothing) {
  const Bytes pixels = random_bytes(kColour.size(), 2);
  Bytes mirrored = pixels;
  mirror(kColour, mirrored);
  EXPECT_NE(mirrored, pixels);
  EXPECT_EQ(mirrored[0], pixels[11]);
  mirror(kColour, mirrored);
  EXPECT_EQ(mirrored, pixels);
}

TEST(Augmentation, ASquareIsPaintedAsFarAsItLiesWithin) {
  const Bytes pixels = random_bytes(kColour.size(), 3);
  const Bytes fill = {10, 20, 30};
  Bytes painted = pixels;
  paint_square(kColour, 11, 0, 4, fill, painted);
  for (std::int64_t c = 0; c < 3; ++c) {
    for (std::int64_t y = 0; y < 9; ++y) {
      for (std::int64_t x = 0; x < 12; ++x) {
        Bytes before = pixels;
        const int expected = x >= 9 && y < 2 ? fill[static_cast<std::size_t>(c)] : at(before, kColour, c, y, x);
        ASSERT_EQ(at(painted, kColour, c, y, x), expected);
      }
    }
  }
}

// torchvision's formulas in double; 12-bit factors and one rounding can differ by one level.
TEST(Augmentation, ColoursAreBlendedAsDefined) {
  const Bytes pixels = random_bytes(kColour.size(), 4);
  const std::size_t plane = 108;
  const auto grey = [&](std::size_t i) {
    return std::round(0.299 * pixels[i] + 0.587 * pixels[i + plane] + 0.114 * pixels[i + 2 * plane]);
  };
  double mean = 0;
  for (std::size_t i = 0; i < plane; ++i) mean += grey(i) / static_cast<double>(plane);
  mean = std::round(mean);
  for (const double factor : {0.0, 0.6, 1.0, 1.37, 2.5}) {
    for (const std::uint32_t which : {0U, 1U, 2U}) {
      JitterDraw draw;
      draw.factors.at(which) = factor;
      Bytes jittered = pixels;
      apply_jitter(draw, kColour, jittered);
      for (std::size_t i = 0; i < pixels.size(); ++i) {
        const double other = which == 0 ? 0 : which == 1 ? mean : grey(i % plane);
        const double expected = std::clamp(factor * pixels[i] + (1 - factor) * other, 0.0, 255.0);
        // The grey level is rounded first, and a large factor magnifies that error.
        ASSERT_NEAR(jittered[i], expected, 0.6 + std::abs(1 - factor)) << which << " times " << factor;
      }
    }
  }
}

TEST(Augmentation, GreyImagesHaveNoSaturation) {
  const Shape shape{1, 9, 12};
  const Bytes pixels = random_bytes(shape.size(), 4);
  Bytes jittered = pixels;
  apply_jitter({{1, 1, 3}, {2, 0, 1}}, shape, jittered);
  EXPECT_EQ(jittered, pixels);
}

TEST(Augmentation, FactorsAndOrdersAreSpread) {
  std::set<std::array<std::uint32_t, 3>> orders;
  double sum = 0;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    const JitterDraw draw = draw_jitter({0.4, 1.5, 0}, sample_key(3, 0, i));
    orders.insert(draw.order);
    EXPECT_TRUE(draw.factors[0] >= 0.6 && draw.factors[0] <= 1.4);
    EXPECT_TRUE(draw.factors[1] >= 0 && draw.factors[1] <= 2.5);
    EXPECT_EQ(draw.factors[2], 1);
    sum += draw.factors[0];
  }
  EXPECT_EQ(orders.size(), 6U);
  EXPECT_NEAR(sum / 2000, 1, 0.02);
}

std::unique_ptr<AugmentedDataset> augmented(const Augmentation& augmentation) {
  constexpr std::size_t kSamples = 40;
  return std::make_unique<AugmentedDataset>(
      std::make_unique<MemoryDataset>("tiny", kColour, 2, random_bytes(kSamples * kColour.size(), 9), Bytes(kSamples)),
      augmentation);
}

std::vector<Augmentation> each_kind() {
  std::vector<Augmentation> kinds(8);
  kinds[0].random_resized_crop = true;
  kinds[1].crop_padding = 4;
  kinds[2].flip = true;
  kinds[3].color_jitter = {0.4, 0.4, 0.4};
  kinds[4].cutout = 5;
  kinds[5].crop_padding = 4;
  kinds[5].crop_reflects = true;
  kinds[6].erasing = 0.7;
  kinds[7].flip = kinds[7].flip_alternates = true;
  kinds.emplace_back().rand_augment = {.operations = 2, .magnitude = 9};
  kinds.emplace_back().trivial_augment = true;
  return kinds;
}

TEST(AugmentedDataset, TrainingReadsAreAFunctionOfSampleAndKeyAndEvaluationReadsAreAsTheyWere) {
  for (const Augmentation& kind : each_kind()) {
    const auto data = augmented(kind);
    const auto plain = augmented({});
    EXPECT_FALSE(data->fixed());
    EXPECT_TRUE(plain->fixed());
    Bytes once(kColour.size());
    Bytes again(kColour.size());
    Bytes other(kColour.size());
    Bytes before(kColour.size());
    int changed = 0;
    int apart = 0;
    for (std::int64_t i = 0; i < 40; ++i) {
      const std::uint64_t key = sample_key(1, 1, static_cast<std::uint32_t>(i));
      EXPECT_EQ(data->read_training(i, key, once), i);
      data->read_training((i + 1) % 40, key, other);
      data->read_training(i, key, again);
      ASSERT_EQ(once, again);
      data->read_training(i, ~key, other);
      data->read(i, again);
      plain->read(i, before);
      ASSERT_EQ(again, before);
      changed += once != before ? 1 : 0;
      apart += once != other ? 1 : 0;
    }
    EXPECT_GE(changed, 10);
    EXPECT_GE(apart, 10);
  }
}

TEST(Augmentation, ErasedRectanglesHaveTheSharesAndRatiosOfTheirDefinition) {
  const Shape shape{3, 200, 150};
  int erased = 0;
  double area = 0;
  double least_ratio = 10;
  double most_ratio = 0;
  double least_area = 1;
  double most_area = 0;
  constexpr int kDraws = 8000;
  for (std::uint32_t i = 0; i < kDraws; ++i) {
    const Rectangle cut = erased_rectangle(0.5, shape, sample_key(1, 2, i));
    if (cut == Rectangle{}) continue;
    ++erased;
    ASSERT_TRUE(cut.left >= 0 && cut.top >= 0 && cut.left + cut.width <= 150 && cut.top + cut.height <= 200);
    const double part = static_cast<double>(cut.width * cut.height) / (200 * 150);
    area += part;
    least_area = std::min(least_area, part);
    most_area = std::max(most_area, part);
    const double ratio = static_cast<double>(cut.height) / static_cast<double>(cut.width);
    least_ratio = std::min(least_ratio, ratio);
    most_ratio = std::max(most_ratio, ratio);
  }
  EXPECT_NEAR(erased, 4000, 225);  // five deviations
  // torchvision's distribution: uniform in [0.02, 0.33], minus the rectangles that do not fit, which are larger ones.
  EXPECT_NEAR(area / erased, 0.172, 0.01);
  EXPECT_NEAR(least_area, 0.02, 0.002);
  EXPECT_NEAR(most_area, 0.33, 0.004);
  EXPECT_NEAR(least_ratio, 0.3, 0.03);
  EXPECT_NEAR(most_ratio, 3.3, 0.2);
  EXPECT_EQ(erased_rectangle(0, shape, 1), Rectangle{});
}

TEST(AugmentedDataset, AlternatingFlipsFollowTheBitOfTheKey) {
  Augmentation alternating;
  alternating.flip = alternating.flip_alternates = true;
  const auto data = augmented(alternating);
  for (std::int64_t i = 0; i < 10; ++i) {
    Bytes plain(kColour.size());
    Bytes even(kColour.size());
    Bytes odd(kColour.size());
    data->read(i, plain);
    const auto index = static_cast<std::uint32_t>(i);
    data->read_training(i, alternating_key(3, 4, index), even);
    data->read_training(i, alternating_key(3, 5, index), odd);
    Bytes mirrored = plain;
    mirror(kColour, mirrored);
    EXPECT_TRUE((even == plain && odd == mirrored) || (even == mirrored && odd == plain)) << i;
  }
}

// The random numbers of one kind do not depend on which others are enabled.
TEST(AugmentedDataset, KindsDrawFromStreamsOfTheirOwn) {
  Augmentation both;
  both.flip = true;
  both.cutout = 3;
  Augmentation flip_only;
  flip_only.flip = true;
  for (std::int64_t i = 0; i < 40; ++i) {
    const std::uint64_t key = sample_key(4, 1, static_cast<std::uint32_t>(i));
    Bytes with(kColour.size());
    Bytes without(kColour.size());
    augmented(both)->read_training(i, key, with);
    augmented(flip_only)->read_training(i, key, without);
    int different = 0;
    for (std::size_t p = 0; p < with.size(); ++p) different += with[p] != without[p] ? 1 : 0;
    EXPECT_LE(different, 3 * 3 * 3);
  }
}

TEST(Mixup, SharesFollowTheBetaDistribution) {
  for (const double alpha : {0.1, 0.4, 1.0, 3.0}) {
    double mean = 0;
    double variance = 0;
    constexpr int kDraws = 6000;
    for (std::uint32_t i = 0; i < kDraws; ++i) {
      const double share = mixing_share(alpha, sample_key(7, 0, i)) / 256.0;
      ASSERT_TRUE(share >= 0 && share <= 1);
      mean += share / kDraws;
      variance += (share - 0.5) * (share - 0.5) / kDraws;
    }
    EXPECT_NEAR(mean, 0.5, 0.03) << alpha;
    EXPECT_NEAR(variance, 1 / (4 * (2 * alpha + 1)), 0.01) << alpha;
  }
  EXPECT_EQ(mixing_share(0.2, 99), mixing_share(0.2, 99));
}

TEST(Cutmix, RectanglesHaveTheSharesOfTheirDefinition) {
  const Shape shape{1, 400, 300};
  double area = 0;
  constexpr int kDraws = 6000;
  for (std::uint32_t i = 0; i < kDraws; ++i) {
    const Rectangle cut = cut_rectangle(1, shape, sample_key(7, 0, i));
    ASSERT_TRUE(cut.left >= 0 && cut.top >= 0 && cut.left + cut.width <= 300 && cut.top + cut.height <= 400);
    area += static_cast<double>(cut.width * cut.height) / (400 * 300) / kDraws;
  }
  // With sides s = sqrt(u), u uniform, around a uniform centre the fraction 1 - s / 4 is inside in each direction:
  // E[u (1 - s / 4)^2] = 1/2 - 1/2 * 2/5 + 1/16 * 1/3.
  EXPECT_NEAR(area, 0.5 - 0.2 + 1.0 / 48, 0.02);
}

TEST(Cutmix, ExchangesTheRectangleInAllChannels) {
  const Bytes first = random_bytes(kColour.size(), 1);
  const Bytes second = random_bytes(kColour.size(), 2);
  Bytes a = first;
  Bytes b = second;
  exchange(kColour, {2, 3, 5, 4}, a, b);
  for (std::int64_t c = 0; c < 3; ++c) {
    for (std::int64_t y = 0; y < 9; ++y) {
      for (std::int64_t x = 0; x < 12; ++x) {
        const bool inside = x >= 2 && x < 7 && y >= 3 && y < 7;
        const auto i = static_cast<std::size_t>((c * 9 + y) * 12 + x);
        ASSERT_EQ(a[i], inside ? second[i] : first[i]);
        ASSERT_EQ(b[i], inside ? first[i] : second[i]);
      }
    }
  }
}

TEST(Cutmix, IsChosenForHalfOfThePairsBesideMixup) {
  int cuts = 0;
  for (std::uint32_t i = 0; i < 2000; ++i) cuts += cuts_pair(0.2, 1, sample_key(7, 0, i)) ? 1 : 0;
  EXPECT_NEAR(cuts, 1000, 112);  // five deviations
  EXPECT_TRUE(cuts_pair(0, 1, 5));
  EXPECT_FALSE(cuts_pair(1, 0, 5));
}

TEST(Mixup, BothOfAPairAreMixedFromWhatTheyWere) {
  const Bytes first = random_bytes(500, 1);
  const Bytes second = random_bytes(500, 2);
  Bytes a = first;
  Bytes b = second;
  mix_pair(a, b, 200, 31);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], (200.0 * first[i] + 56.0 * second[i]) / 256, 0.501);
    ASSERT_NEAR(b[i], (31.0 * second[i] + 225.0 * first[i]) / 256, 0.501);
  }
  mix_pair(a, b, 256, 256);
  Bytes same = a;
  mix_pair(a, b, 256, 0);
  EXPECT_EQ(a, same);
  EXPECT_EQ(b, same);
}

// What a device does with edits is what the loader does with images.
TEST(Augmentation, EditsGiveTheBytesOfReadTraining) {
  const Shape shape{3, 14, 17};
  constexpr std::int64_t kImages = 40;
  const std::size_t bytes = shape.size();
  const Bytes pixels = random_bytes(kImages * bytes, 3);
  for (int choice = 0; choice < 64; ++choice) {
    Augmentation augmentation;
    augmentation.crop_padding = (choice & 1) != 0 ? 5 : 0;
    augmentation.crop_reflects = (choice & 2) != 0;
    augmentation.flip = (choice & 4) != 0;
    augmentation.flip_alternates = (choice & 8) != 0;
    augmentation.cutout = (choice & 16) != 0 ? 6 : 0;
    augmentation.erasing = (choice & 32) != 0 ? 0.7 : 0;
    augmentation.fill = {11, 222, 99};
    ASSERT_TRUE(augmentation.only_edits());
    const EditRules rules{14, 17, augmentation.crop_reflects};
    const AugmentedDataset data(
        std::make_unique<MemoryDataset>("noise", shape, 10, pixels, std::vector<std::uint8_t>(kImages, 1)),
        augmentation);
    for (std::uint32_t i = 0; i < kImages; ++i) {
      const std::uint64_t key = sample_key(9, choice, i);
      Bytes expected(bytes);
      EXPECT_EQ(data.read_training(i, key, expected), i);
      const ImageEdit edit = edit_of(augmentation, shape, key);
      for (std::size_t at = 0; at < bytes; ++at) {
        const std::size_t plane = 14 * 17;
        const auto row = static_cast<std::int32_t>(at % plane / 17);
        const auto column = static_cast<std::int32_t>(at % 17);
        const std::uint8_t* channel = &pixels[i * bytes + at / plane * plane];
        ASSERT_EQ(edited_byte(channel, rules, edit, row, column, augmentation.fill[at / plane]), expected[at])
            << choice << " image " << i << " byte " << at;
      }
    }
  }
  Augmentation jitter;
  jitter.color_jitter = {0.1, 0, 0};
  EXPECT_FALSE(jitter.only_edits());
}

}  // namespace
}  // namespace ddp
