#include "data/pipeline/normalization.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <mutex>
#include <span>

#include "base/error.h"
#include "base/partition.h"
#include "base/threads.h"

namespace ddp {
namespace {

struct Sums {
  std::vector<std::uint64_t> values;   // per channel
  std::vector<std::uint64_t> squares;  // per channel

  explicit Sums(std::size_t channels) : values(channels), squares(channels) {}
  void add(const Sums& other) {
    for (std::size_t c = 0; c < values.size(); ++c) {
      values[c] += other.values[c];
      squares[c] += other.squares[c];
    }
  }
};

// Over the images range.begin .. range.end - 1 of `samples` images spread evenly over the data set.
Sums sums_over(const Dataset& dataset, std::int64_t samples, const Range& range) {
  const Shape shape = dataset.shape();
  Sums sums(static_cast<std::size_t>(shape.channels));
  const std::size_t plane = shape.size() / sums.values.size();
  std::vector<std::uint8_t> pixels(shape.size());
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    dataset.read_plain(part(dataset.size(), samples, i).begin, pixels);
    for (std::size_t channel = 0; channel < sums.values.size(); ++channel) {
      for (const std::uint64_t value : std::span(pixels).subspan(channel * plane, plane)) {
        sums.values[channel] += value;
        sums.squares[channel] += value * value;
      }
    }
  }
  return sums;
}

}  // namespace

Normalization measure_normalization(const Dataset& dataset, std::int64_t samples, int threads) {
  if (samples == 0) samples = dataset.size();
  samples = std::min(samples, dataset.size());
  Sums sums(static_cast<std::size_t>(dataset.shape().channels));
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&](int thread) {
    try {
      const Sums mine = sums_over(dataset, samples, part(samples, threads, thread));
      const std::scoped_lock lock(mutex);
      sums.add(mine);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      failure = std::current_exception();
    }
  };
  run_parts(threads, work);
  if (failure) std::rethrow_exception(failure);
  Normalization result;
  const std::size_t plane = dataset.shape().size() / sums.values.size();
  const double count = static_cast<double>(samples) * static_cast<double>(plane);
  for (std::size_t channel = 0; channel < sums.values.size(); ++channel) {
    const double mean = static_cast<double>(sums.values[channel]) / count;
    const double variance = static_cast<double>(sums.squares[channel]) / count - mean * mean;
    result.mean.push_back(static_cast<float>(mean / 255));
    result.deviation.push_back(variance > 1e-9 ? static_cast<float>(std::sqrt(variance) / 255) : 1.0F);
  }
  return result;
}

Normalization imagenet_normalization() { return {{0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}}; }

}  // namespace ddp
