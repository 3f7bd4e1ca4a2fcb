#include "data/pipeline/mixup.h"

#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace ddp {
namespace {

// Separates the mixing weights from a sample's augmentation, whose streams have small numbers.
constexpr std::uint64_t kMixupStream = 0x6d697875;

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

}  // namespace

std::int32_t mixing_share(double alpha, std::uint64_t key) {
  DDP_ASSERT(alpha > 0);
  Random random(key, kMixupStream);
  const double mine = log_gamma_variate(alpha, random);
  const double other = log_gamma_variate(alpha, random);
  return static_cast<std::int32_t>(std::lround(kWholeShare / (1 + std::exp(other - mine))));
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
