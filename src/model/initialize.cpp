#include "model/initialize.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace ddp {
namespace {

// The random stream of initial weights; other uses of the seed have other streams.
constexpr std::uint64_t kStream = 0x1417;

float truncated_normal(Random& random) {
  float value = random.normal();
  while (std::abs(value) > 2) value = random.normal();
  return value;
}

float draw(const Initial& initial, const Parameter& parameter, Random& random) {
  const auto fan_in = static_cast<float>(parameter.fan_in);
  const auto fan_out = static_cast<float>(parameter.fan_out);
  const auto uniform = [&](float bound) { return random.uniform(-bound, bound); };
  switch (initial.kind) {
    case Initial::Kind::uniform_fan_in:
      return uniform(initial.scale / std::sqrt(fan_in));
    case Initial::Kind::constant:
      return initial.scale;
    case Initial::Kind::normal:
      return initial.scale * random.normal();
    case Initial::Kind::truncated_normal:
      return initial.scale * truncated_normal(random);
    case Initial::Kind::xavier_uniform:
      return uniform(initial.scale * std::sqrt(6.0F / (fan_in + fan_out)));
    case Initial::Kind::xavier_caffe:
      return uniform(initial.scale * std::sqrt(3.0F / fan_in));
    case Initial::Kind::kaiming_fan_in:
      return initial.scale * std::sqrt(2.0F / fan_in) * random.normal();
    case Initial::Kind::deviation:
      return uniform(1 / std::sqrt(fan_in));
    case Initial::Kind::dirac:
    case Initial::Kind::whitening:
      return uniform(initial.scale / std::sqrt(fan_in));
    case Initial::Kind::kaiming_fan_out:
      break;
  }
  return initial.scale * std::sqrt(2.0F / fan_out) * random.normal();
}

// torch.nn.init.dirac_ on the first outputs, as many as there are inputs: 1 at the centre of the window of the input
// with the same number, 0 elsewhere.
void put_dirac(const Parameter& parameter, std::span<float> weights) {
  const std::int64_t inputs = parameter.shape[1];
  const std::int64_t area = parameter.shape[2] * parameter.shape[3];
  const std::int64_t centre = parameter.shape[2] / 2 * parameter.shape[3] + parameter.shape[3] / 2;
  for (std::int64_t i = 0; i < std::min(inputs, parameter.shape[0]); ++i) {
    const std::span<float> filter =
        weights.subspan(static_cast<std::size_t>(i * inputs * area), static_cast<std::size_t>(inputs * area));
    std::fill(filter.begin(), filter.end(), 0.0F);
    filter[static_cast<std::size_t>(i * area + centre)] = 1;
  }
}

// As torch.std() computes it.
double deviation(std::span<const float> values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const float value : values) squares += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean);
  return std::sqrt(squares / (count - 1));
}

}  // namespace

void initialize(const Graph& graph, const std::optional<Initial>& weights, std::uint64_t seed, std::span<float> flat) {
  DDP_ASSERT(static_cast<std::int64_t>(flat.size()) == graph.flat_elements());
  std::uint32_t index = 0;
  for (const Parameter& parameter : graph.parameters()) {
    Random random(seed, kStream, index++);
    Initial initial = parameter.initial;
    if (weights && !parameter.norm) initial = parameter.bias ? Initial{Initial::Kind::constant, 0} : *weights;
    const std::span<float> values =
        flat.subspan(static_cast<std::size_t>(parameter.offset), static_cast<std::size_t>(parameter.elements()));
    for (float& value : values) value = draw(initial, parameter, random);
    if (initial.kind == Initial::Kind::dirac) put_dirac(parameter, values);
    if (initial.kind == Initial::Kind::deviation) {
      const auto factor = static_cast<float>(static_cast<double>(initial.scale) / deviation(values));
      for (float& value : values) value *= factor;
    }
  }
}

void initialize_statistics(const Graph& graph, std::span<float> flat) {
  DDP_ASSERT(static_cast<std::int64_t>(flat.size()) == graph.statistic_count());
  for (const Statistic& statistic : graph.statistics()) {
    std::fill_n(flat.begin() + statistic.offset, statistic.channels, statistic.initial);
  }
}

}  // namespace ddp
