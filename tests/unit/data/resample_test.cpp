#include "data/images/resample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "data/images/resample_kernels.h"
#include "unit/data/files.h"

namespace ddp {
namespace {

// The triangle filter in double precision, from its definition.
double weighted(const RasterView& image, const Region& region, const Shape& shape, std::int64_t channel, std::int64_t y,
                std::int64_t x) {
  const auto axis = [](double begin, double length, std::int64_t out, std::int64_t i, std::int64_t in) {
    const double scale = length / static_cast<double>(out);
    const double support = std::max(1.0, scale);
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    std::vector<double> weights(static_cast<std::size_t>(in));
    double sum = 0;
    for (auto k = static_cast<std::int64_t>(begin); k < std::min(in, std::int64_t(std::ceil(begin + length))); ++k) {
      const double weight = std::max(0.0, 1 - std::abs((static_cast<double>(k) + 0.5 - centre) / support));
      weights[static_cast<std::size_t>(k)] = weight;
      sum += weight;
    }
    for (double& weight : weights) weight /= sum;
    return weights;
  };
  const std::vector<double> rows = axis(region.y, region.height, shape.height, y, image.height);
  const std::int64_t place = region.mirrored ? shape.width - 1 - x : x;
  const std::vector<double> columns = axis(region.x, region.width, shape.width, place, image.width);
  double sum = 0;
  for (std::int64_t r = 0; r < image.height; ++r) {
    for (std::int64_t c = 0; c < image.width; ++c) {
      const double weight = rows[static_cast<std::size_t>(r)] * columns[static_cast<std::size_t>(c)];
      sum += weight * image.pixels[(r * image.width + c) * image.channels + channel];
    }
  }
  return sum;
}

struct Case {
  ImageSize image;
  std::int64_t channels;
  Region region;
  std::int64_t height;
  std::int64_t width;
};

std::vector<Case> cases() {
  return {
      {{40, 30}, 3, {0, 0, 40, 30}, 30, 40},  // a copy
      {{40, 30}, 3, {3.25, 2.5, 20.5, 24, true}, 17, 19},
      {{40, 30}, 1, {5, 5, 10, 12}, 33, 50},  // upsampling
      {{90, 7}, 3, {10, 0, 70, 7}, 16, 16},   // many inputs horizontally, few vertically
      {{9, 80}, 3, {0, 1, 9, 78}, 5, 40},
      {{1, 1}, 3, {0, 0, 1, 1}, 20, 20},  // too narrow for vectors
      {{2, 3}, 1, {0, 0, 2, 3, true}, 4, 4},
      {{60, 50}, 3, {59, 49, 1, 1}, 18, 18},  // the last pixel
      {{28, 28}, 1, {1.5, 0.25, 20.75, 27}, 28, 28},
  };
}

// Two passes with products rounded to 1/64 and 1/32, and a final rounding.
TEST(Resampler, AgreesWithTheFilterInDouble) {
  for (const Case& c : cases()) {
    const Bytes pixels = random_bytes(static_cast<std::size_t>(c.image.width * c.image.height * c.channels), 5);
    const RasterView image{pixels.data(), c.image.width, c.image.height, c.channels};
    const Shape shape{c.channels, c.height, c.width};
    Bytes out(shape.size());
    Resampler resampler;
    resampler.run(image, c.region, shape, out);
    for (std::int64_t channel = 0; channel < c.channels; ++channel) {
      for (std::int64_t y = 0; y < c.height; ++y) {
        for (std::int64_t x = 0; x < c.width; ++x) {
          const double expected = weighted(image, c.region, shape, channel, y, x);
          const double actual = out[static_cast<std::size_t>((channel * c.height + y) * c.width + x)];
          ASSERT_NEAR(actual, expected, 0.9) << c.image.width << "x" << c.image.height << " at " << y << ", " << x;
        }
      }
    }
  }
}

TEST(Resampler, ACopyIsExact) {
  const Bytes pixels = random_bytes(std::size_t{33} * 21, 6);
  Bytes out(pixels.size());
  Resampler().run({pixels.data(), 33, 21, 1}, {0, 0, 33, 21}, {1, 21, 33}, out);
  EXPECT_EQ(out, pixels);
}

// A uniform grey must not change, whatever the weights.
TEST(Resampler, WeightsAddUpToOne) {
  for (const int level : {0, 1, 127, 254, 255}) {
    const Bytes pixels(std::size_t{50} * 50 * 3, static_cast<std::uint8_t>(level));
    Random random(static_cast<std::uint64_t>(level), 1);
    for (int i = 0; i < 20; ++i) {
      const double x = 20 * random.uniform_double();
      const double y = 20 * random.uniform_double();
      Bytes out(std::size_t{3} * 19 * 23);
      Resampler().run({pixels.data(), 50, 50, 3}, {x, y, 1 + 28 * random.uniform_double(), 29}, {3, 19, 23}, out);
      ASSERT_TRUE(std::all_of(out.begin(), out.end(), [level](int value) { return value == level; }));
    }
  }
}

AxisFilter filter_of(std::int64_t taps, std::int64_t in, std::int64_t out, std::uint64_t seed) {
  Random random(seed, 2);
  AxisFilter filter;
  filter.taps = taps;
  for (std::int64_t i = 0; i < out; ++i) {
    filter.starts.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(in - taps + 1))));
    std::int32_t left = 1 << 14;
    for (std::int64_t k = 0; k < taps; ++k) {
      const auto weight =
          static_cast<std::int32_t>(k + 1 < taps ? random.below(static_cast<std::uint64_t>(left)) : left);
      filter.weights.push_back(static_cast<std::int16_t>(weight));
      left -= weight;
    }
  }
  return filter;
}

TEST(Resampler, EveryProcessorsKernelGivesTheSameBytes) {
  const ResampleKernel fast = resample_avx2();
  if (fast == nullptr || __builtin_cpu_supports("avx2") == 0) GTEST_SKIP() << "this processor has no AVX2";
  std::vector<std::int16_t> scratch;
  for (const std::int64_t channels : {1, 3}) {
    for (const std::int64_t taps : {1, 2, 3, 4, 7}) {
      for (const std::int64_t side : {1, 15, 16, 37}) {
        const std::int64_t width = 29 + taps;
        const Bytes pixels = random_bytes(static_cast<std::size_t>(width * 31 * channels), 7);
        const AxisFilter across = filter_of(taps, width, side, 3);
        const AxisFilter down = filter_of(taps, 31, side + 2, 4);
        Bytes by_fast(static_cast<std::size_t>(channels * side * (side + 2)));
        Bytes by_portable(by_fast.size());
        const RasterView image{pixels.data(), width, 31, channels};
        fast({image, across, down, side, side + 2, by_fast.data(), scratch});
        resample_portable({image, across, down, side, side + 2, by_portable.data(), scratch});
        ASSERT_EQ(by_fast, by_portable) << channels << " " << taps << " " << side;
      }
    }
  }
}

}  // namespace
}  // namespace ddp
