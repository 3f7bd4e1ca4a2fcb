#include "model/initialize.h"

#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace ddp {
namespace {

// The stream of random numbers that belongs to initial weights; other uses of the seed take other streams.
constexpr std::uint64_t kStream = 0x1417;

float draw(const Initializer& how, const Parameter& parameter, Random& random) {
  using Kind = Initializer::Kind;
  const auto fan_in = static_cast<float>(parameter.fan_in);
  const auto fan_out = static_cast<float>(parameter.fan_out);
  if (how.kind == Kind::pytorch) {
    const float bound = 1.0F / std::sqrt(fan_in);
    return random.uniform(-bound, bound);
  }
  if (parameter.bias) return 0.0F;
  if (how.kind == Kind::normal) return how.deviation * random.normal();
  if (how.kind == Kind::kaiming) return std::sqrt(2.0F / fan_in) * random.normal();
  const float bound = std::sqrt(6.0F / (fan_in + fan_out));
  return random.uniform(-bound, bound);
}

}  // namespace

void initialize(const Graph& graph, const Initializer& initializer, std::uint64_t seed, std::span<float> flat) {
  DDP_ASSERT(static_cast<std::int64_t>(flat.size()) == graph.parameter_count());
  std::uint32_t index = 0;
  for (const Parameter& parameter : graph.parameters()) {
    Random random(seed, kStream, index++);
    for (std::int64_t i = 0; i < parameter.elements(); ++i) {
      flat[static_cast<std::size_t>(parameter.offset + i)] = draw(initializer, parameter, random);
    }
  }
}

}  // namespace ddp
