#include "base/random.h"

#include <fmt/core.h>

#include <cmath>
#include <numbers>
#include <random>
#include <utility>

namespace ddp {
namespace {

constexpr std::uint32_t kMultiplier0 = 0xD2511F53;
constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
constexpr std::uint32_t kWeyl1 = 0xBB67AE85;

constexpr std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
constexpr std::uint32_t high(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32U); }

}  // namespace

std::string random_token() {
  std::random_device device;
  std::string token;
  for (int word = 0; word < 4; ++word) token += fmt::format("{:08x}", device());
  return token;
}

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{kMultiplier0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kMultiplier1} * counter[2];
    counter = {high(product1) ^ counter[1] ^ key[0], low(product1), high(product0) ^ counter[3] ^ key[1],
               low(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

Random::Random(std::uint64_t seed, std::uint64_t stream, std::uint32_t substream)
    : key_{low(seed), high(seed)}, counter_{0, substream, low(stream), high(stream)} {}

std::uint32_t Random::next_u32() {
  if (used_ == 4) {
    block_ = philox(counter_, key_);
    ++counter_[0];
    used_ = 0;
  }
  return block_[static_cast<std::size_t>(used_++)];
}

std::uint64_t Random::next_u64() {
  const std::uint64_t upper = next_u32();
  return (upper << 32U) | next_u32();
}

float Random::uniform() { return static_cast<float>(next_u32() >> 8U) * 0x1p-24F; }

float Random::uniform(float lower, float upper) { return lower + (upper - lower) * uniform(); }

double Random::uniform_double() { return static_cast<double>(next_u64() >> 11U) * 0x1p-53; }

std::uint64_t Random::below(std::uint64_t bound) {
  // Lemire's multiplication by the bound, with the biased low products rejected.
  __extension__ using Wide = unsigned __int128;
  Wide product = Wide{next_u64()} * bound;
  if (static_cast<std::uint64_t>(product) < bound) {
    const std::uint64_t threshold = -bound % bound;
    while (static_cast<std::uint64_t>(product) < threshold) product = Wide{next_u64()} * bound;
  }
  return static_cast<std::uint64_t>(product >> 64U);
}

double Random::normal_double() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_normal_;
  }
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform_double()));
  const double angle = 2.0 * std::numbers::pi * uniform_double();
  spare_normal_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

float Random::normal() { return static_cast<float>(normal_double()); }

void shuffle(std::span<std::uint32_t> values, Random& random) {
  for (std::size_t left = values.size(); left > 1; --left) {
    std::swap(values[left - 1], values[static_cast<std::size_t>(random.below(left))]);
  }
}

}  // namespace ddp
