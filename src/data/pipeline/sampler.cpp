#include "data/pipeline/sampler.h"

#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace ddp {
namespace {

// Separates the sampler's random stream from those keyed by (seed, epoch, sample).
constexpr std::uint32_t kOrderSubstream = 0xFFFFFFFF;

}  // namespace

Sampler::Sampler(std::int64_t samples, std::uint64_t seed) : seed_(seed) {
  check(samples > 0 && samples < std::numeric_limits<std::uint32_t>::max(), ExitCode::data,
        "a data set of {} samples cannot be sampled: 1 to {} are supported", samples,
        std::numeric_limits<std::uint32_t>::max() - 1);
  order_.resize(static_cast<std::size_t>(samples));
  std::iota(order_.begin(), order_.end(), 0U);
}

void Sampler::begin_epoch(std::int64_t epoch) {
  std::iota(order_.begin(), order_.end(), 0U);
  Random random(seed_, static_cast<std::uint64_t>(epoch), kOrderSubstream);
  shuffle(order_, random);
}

}  // namespace ddp
