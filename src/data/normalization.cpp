#include "data/normalization.h"

#include <cmath>
#include <cstdint>
#include <span>

#include "base/error.h"

namespace ddp {

Normalization measure_normalization(const Dataset& dataset) {
  const ImageShape shape = dataset.shape();
  const auto channels = static_cast<std::size_t>(shape.channels);
  const std::size_t plane = shape.bytes() / channels;
  std::vector<std::uint64_t> sum(channels);
  std::vector<std::uint64_t> squares(channels);
  std::vector<std::uint8_t> pixels(shape.bytes());
  for (std::int64_t index = 0; index < dataset.size(); ++index) {
    dataset.read(index, pixels);
    for (std::size_t channel = 0; channel < channels; ++channel) {
      for (const std::uint64_t value : std::span(pixels).subspan(channel * plane, plane)) {
        sum[channel] += value;
        squares[channel] += value * value;
      }
    }
  }
  Normalization result;
  const double count = static_cast<double>(dataset.size()) * static_cast<double>(plane);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const double mean = static_cast<double>(sum[channel]) / count;
    const double variance = static_cast<double>(squares[channel]) / count - mean * mean;
    result.mean.push_back(static_cast<float>(mean / 255));
    result.deviation.push_back(variance > 1e-9 ? static_cast<float>(std::sqrt(variance) / 255) : 1.0F);
  }
  return result;
}

}  // namespace ddp
