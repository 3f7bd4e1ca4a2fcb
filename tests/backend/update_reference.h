// The rules of optim/rules/update.h in double precision, from the papers and PyTorch's documentation.
//
//   ReferenceUpdate expected(settings, segments, initial);
//   expected.update(gradient, lr, settings.own_momentum());
//   expected.weights[i];
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/update/flat_update.h"
#include "support/newton_schulz.h"

namespace ddp {

// What segments with a falling rate of their own fall from.
inline constexpr double kFullLr = 0.07;

class ReferenceUpdate {
 public:
  ReferenceUpdate(const UpdateSettings& settings, std::vector<ParameterSegment> segments,
                  const std::vector<float>& initial)
      : weights(initial.begin(), initial.end()),
        first(initial.size()),
        second(initial.size()),
        average(initial.begin(), initial.end()),
        settings_(settings),
        segments_(std::move(segments)) {}

  // `momentum` (or beta1) overrides the settings.
  void update(const std::vector<float>& gradient, double lr, double momentum) {
    ++steps_;
    std::vector<double> g(gradient.begin(), gradient.end());
    if (settings_.clip_norm > 0) {
      double squares = 0;
      for (const ParameterSegment& segment : segments_) {
        const auto begin = static_cast<std::size_t>(segment.offset);
        const double part = norm(g, begin, begin + static_cast<std::size_t>(segment.count));
        if (!is_frozen(segment)) squares += part * part;
      }
      const double factor = std::min(1.0, settings_.clip_norm / (std::sqrt(squares) + 1e-6));
      for (double& value : g) value *= factor;
    }
    if (settings_.clip_value > 0) {
      for (double& value : g) value = std::clamp(value, -settings_.clip_value, settings_.clip_value);
    }
    for (const ParameterSegment& segment : segments_) {
      if (!is_frozen(segment)) update_segment(segment, g, lr_of(segment, lr), momentum);
    }
    const auto n = static_cast<double>(steps_ - 1);
    const double keep =
        settings_.average_warmup ? std::min(settings_.average_decay, (1 + n) / (10 + n)) : settings_.average_decay;
    for (std::size_t i = 0; i < weights.size(); ++i) average[i] = keep * average[i] + (1 - keep) * weights[i];
  }

  std::int64_t steps() const { return steps_; }

  std::vector<double> weights;
  std::vector<double> first;
  std::vector<double> second;
  std::vector<double> average;

 private:
  double lr_of(const ParameterSegment& segment, double scheduled) const {
    const bool fades = segment.fade_steps < kEveryStep;
    return fades ? kFullLr * (1 - static_cast<double>(steps_ - 1) / segment.fade_steps) : scheduled;
  }
  bool is_frozen(const ParameterSegment& segment) const { return static_cast<double>(steps_) > segment.last_step; }

  static double norm(const std::vector<double>& values, std::size_t begin, std::size_t end) {
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += values[i] * values[i];
    return std::sqrt(sum);
  }

  void update_matrix(const ParameterSegment& segment, const std::vector<double>& g, double global_lr) {
    const UpdateSettings& s = settings_;
    const auto begin = static_cast<std::size_t>(segment.offset);
    const auto count = static_cast<std::size_t>(segment.count);
    const auto rows = static_cast<std::size_t>(segment.rows);
    Matrix direction = zeros(rows, count / rows);
    for (std::size_t i = 0; i < count; ++i) {
      first[begin + i] = s.muon_momentum * first[begin + i] + g[begin + i];
      direction.values[i] = g[begin + i] + s.muon_momentum * first[begin + i];
    }
    direction = orthogonal(direction, s.muon_steps);
    const auto r = static_cast<double>(direction.rows);
    const auto c = static_cast<double>(direction.columns);
    double factor = 1;
    if (s.muon_scale == MuonScale::shape) factor = std::sqrt(std::max(1.0, r / c));
    if (s.muon_scale == MuonScale::rms) factor = 0.2 * std::sqrt(std::max(r, c));
    const double size = norm(weights, begin, begin + count);
    const double scale = s.muon_normalizes && size > 0 ? std::sqrt(r) / size : 1;
    const double lr = global_lr * static_cast<double>(segment.lr_scale);
    const double decay = s.weight_decay * static_cast<double>(segment.decay_scale);
    for (std::size_t i = 0; i < count; ++i) {
      weights[begin + i] = scale * (1 - lr * decay) * weights[begin + i] - lr * factor * direction.values[i];
    }
  }

  void update_segment(const ParameterSegment& segment, const std::vector<double>& g, double global_lr,
                      double momentum) {
    if (segment.rows > 0) return update_matrix(segment, g, global_lr);
    const UpdateSettings& s = settings_;
    const auto begin = static_cast<std::size_t>(segment.offset);
    const std::size_t end = begin + static_cast<std::size_t>(segment.count);
    const double lr = global_lr * static_cast<double>(segment.lr_scale);
    const double decay = s.weight_decay * static_cast<double>(segment.decay_scale);
    const double l2 = s.decays_weights() || s.rule == UpdateRule::lamb ? 0 : decay;
    std::vector<double> step(weights.size());
    double ratio = 1;
    if (s.rule == UpdateRule::lars && segment.adapt) {
      const double w = norm(weights, begin, end);
      const double of_gradient = norm(g, begin, end);
      if (w > 0 && of_gradient > 0) ratio = s.trust * w / (of_gradient + decay * w);
    }
    for (std::size_t i = begin; i < end; ++i) {
      const double d = g[i] + l2 * weights[i];
      if (s.rule == UpdateRule::sgd || s.rule == UpdateRule::muon) {
        first[i] = momentum * first[i] + d;
        step[i] = lr * (s.nesterov ? d + momentum * first[i] : first[i]);
      } else if (s.rule == UpdateRule::rmsprop) {
        second[i] = s.rho * second[i] + (1 - s.rho) * d * d;
        first[i] = momentum * first[i] +
                   (s.keras ? lr * d / std::sqrt(second[i] + s.epsilon) : d / (std::sqrt(second[i]) + s.epsilon));
        step[i] = s.keras ? first[i] : lr * first[i];
      } else if (s.rule == UpdateRule::lars) {
        first[i] = momentum * first[i] + lr * ratio * d;
        step[i] = first[i];
      } else {
        first[i] = momentum * first[i] + (1 - momentum) * d;
        second[i] = s.beta2 * second[i] + (1 - s.beta2) * d * d;
        const auto t = static_cast<double>(steps_);
        const double mean = first[i] / (1 - std::pow(momentum, t));
        const double square = second[i] / (1 - std::pow(s.beta2, t));
        step[i] = lr * mean / (std::sqrt(square) + s.epsilon);
        if (s.rule == UpdateRule::lamb) step[i] += lr * decay * weights[i];
      }
    }
    if (s.rule == UpdateRule::lamb && segment.adapt) {
      const double w = norm(weights, begin, end);
      const double direction = norm(step, begin, end) / lr;
      if (w > 0 && direction > 0) ratio = w / direction;
      for (std::size_t i = begin; i < end; ++i) step[i] *= ratio;
    }
    for (std::size_t i = begin; i < end; ++i) {
      if (s.decays_weights()) weights[i] *= 1 - lr * decay;
      weights[i] -= step[i];
    }
  }

  UpdateSettings settings_;
  std::vector<ParameterSegment> segments_;
  std::int64_t steps_ = 0;
};

}  // namespace ddp
