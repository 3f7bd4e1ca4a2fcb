// The arithmetic of batch normalisation of one channel, shared by all layouts: what follows from its sums.
//
//   const NormArithmetic norm(spec);
//   const Normaliser n = norm.measured(channel, {sum_of_x, sum_of_squares}, count, statistics);   // moves running statistics
//   const NormLine line = NormArithmetic::line(n, weight, bias);        // y = scale * (x - n.mean) + shift
//   const NormSlope slope = NormArithmetic::slope(n, gradient_sums, count, weight);
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "backend/ops/batch_norm.h"

namespace ddp {

// The mean as a sum of two floats, since one is not precise enough if it is large compared with the deviations, and 1 /
// sqrt(variance + epsilon).
struct Normaliser {
  float mean = 0;
  float rest = 0;
  float inverse = 0;
};

// Sums of x and x^2; in backward of dy and dy * (x - mean).
struct NormSums {
  double first = 0;
  double second = 0;
};

// y = scale * (x - mean) + shift.
struct NormLine {
  float scale = 0;
  float shift = 0;
};

// dx = scale * ((dy - offset) - slope * (x - mean)).
struct NormSlope {
  float scale = 0;
  float offset = 0;
  float slope = 0;
};

class NormArithmetic {
 public:
  explicit NormArithmetic(const BatchNormSpec& spec)
      : channels_(spec.shape.channels),
        epsilon_(static_cast<double>(spec.epsilon)),
        momentum_(static_cast<double>(spec.momentum)) {}

  // From the running statistics, [2][channels]: means, then variances.
  Normaliser running(std::int64_t channel, const float* statistics) const {
    return normaliser(static_cast<double>(statistics[channel]), static_cast<double>(statistics[channels_ + channel]));
  }

  // From the sums over `count` elements; updates the running statistics.
  Normaliser measured(std::int64_t channel, const NormSums& sums, double count, float* statistics) const {
    if (count == 0) return running(channel, statistics);
    const double mean = sums.first / count;
    const double variance = std::max(0.0, sums.second / count - mean * mean);
    const auto move = [&](float& value, double towards) {
      const auto old = static_cast<double>(value);
      value = static_cast<float>(old + momentum_ * (towards - old));
    };
    move(statistics[channel], mean);
    move(statistics[channels_ + channel], variance * count / std::max(1.0, count - 1));
    return normaliser(mean, variance);
  }

  static NormLine line(const Normaliser& n, float weight, float bias) {
    const float scale = weight * n.inverse;
    return {scale, bias - scale * n.rest};
  }

  // The gradients of the weight and of the bias.
  static float weight_gradient(const Normaliser& n, const NormSums& sums) {
    return static_cast<float>(product(n, sums));
  }
  static float bias_gradient(const NormSums& sums) { return static_cast<float>(sums.first); }

  // From the sums over the `elements` of which the statistics are.
  static NormSlope slope(const Normaliser& n, const NormSums& sums, double elements, float weight) {
    const double count = std::max(1.0, elements);
    const double slope = product(n, sums) * static_cast<double>(n.inverse) / count;
    return {weight * n.inverse, static_cast<float>(sums.first / count - static_cast<double>(n.rest) * slope),
            static_cast<float>(slope)};
  }

 private:
  // The sum of dy * (x - mean) / deviation, from those of dy and of dy * (x - n.mean).
  static double product(const Normaliser& n, const NormSums& sums) {
    return (sums.second - static_cast<double>(n.rest) * sums.first) * static_cast<double>(n.inverse);
  }
  Normaliser normaliser(double mean, double variance) const {
    const auto nearest = static_cast<float>(mean);
    return {nearest, static_cast<float>(mean - static_cast<double>(nearest)),
            static_cast<float>(1 / std::sqrt(variance + epsilon_))};
  }

  std::int64_t channels_;
  double epsilon_, momentum_;
};

}  // namespace ddp
