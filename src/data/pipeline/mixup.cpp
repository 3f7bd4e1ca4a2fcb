#include "data/pipeline/mixup.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace ddp {
namespace {

// Separates the mixing weights from a sample's augmentation, whose streams have small numbers.
constexpr std::uint64_t kMixupStream = 0x6d697875;
constexpr std::uint64_t kCutStream = 0x6375746d;
constexpr std::uint64_t kKindStream = 0x6b696e64;

// A gamma variate of shape `alpha` (Marsaglia, Tsang: "A Simple Method for Generating Gamma Variables", 2000), as its
// logarithm: for small shapes the variate itself would underflow.
double log_gamma_variate(double alpha, Random& random) {
  if (alpha < 1) {
    const double uniform = 1 - random.uniform_double();
    return log_gamma_variate(alpha + 1, random) + std::log(uniform) / alpha;
  }
  const double d = alpha - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = random.normal_double();
    const double v = 1 + c * x;
    if (v <= 0) continue;
    const double cube = v * v * v;
    const double uniform = 1 - random.uniform_double();
    if (std::log(uniform) < 0.5 * x * x + d - d * cube + d * std::log(cube)) return std::log(d) + std::log(cube);
  }
}

// From Beta(alpha, alpha).
double beta_variate(double alpha, Random& random) {
  const double mine = log_gamma_variate(alpha, random);
  const double other = log_gamma_variate(alpha, random);
  return 1 / (1 + std::exp(other - mine));
}

}  // namespace

std::int32_t mixing_share(double alpha, std::uint64_t key) {
  DDP_ASSERT(alpha > 0);
  Random random(key, kMixupStream);
  return static_cast<std::int32_t>(std::lround(kWholeShare * beta_variate(alpha, random)));
}

bool cuts_pair(double mixup, double cutmix, std::uint64_t key) {
  if (mixup == 0 || cutmix == 0) return cutmix > 0;
  return Random(key, kKindStream).next_u32() >> 31U != 0;
}

Rectangle cut_rectangle(double alpha, const Shape& shape, std::uint64_t key) {
  DDP_ASSERT(alpha > 0);
  Random random(key, kCutStream);
  const double side = std::sqrt(1 - beta_variate(alpha, random));
  // Half of the cut on each side of a random one of `extent` pixels, as in the authors' code.
  const auto along = [&](std::int64_t extent) {
    const auto half = static_cast<std::int64_t>(side * static_cast<double>(extent)) / 2;
    const auto centre = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(extent)));
    const std::int64_t begin = std::max<std::int64_t>(0, centre - half);
    return std::pair(begin, std::min(extent, centre + half) - begin);
  };
  const auto [left, width] = along(shape.width);
  const auto [top, height] = along(shape.height);
  return {left, top, width, height};
}

void exchange(const Shape& shape, const Rectangle& cut, std::span<std::uint8_t> a, std::span<std::uint8_t> b) {
  for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
    for (std::int64_t y = cut.top; y < cut.top + cut.height; ++y) {
      const std::int64_t row = (channel * shape.height + y) * shape.width + cut.left;
      std::swap_ranges(a.begin() + row, a.begin() + row + cut.width, b.begin() + row);
    }
  }
}

void mix_pair(std::span<std::uint8_t> a, std::span<std::uint8_t> b, std::int32_t share_a, std::int32_t share_b) {
  DDP_ASSERT(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::int32_t x = a[i];
    const std::int32_t y = b[i];
    a[i] = static_cast<std::uint8_t>((x * share_a + y * (kWholeShare - share_a) + kWholeShare / 2) / kWholeShare);
    b[i] = static_cast<std::uint8_t>((y * share_b + x * (kWholeShare - share_b) + kWholeShare / 2) / kWholeShare);
  }
}

}  // namespace ddp
