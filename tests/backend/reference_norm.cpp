#include <algorithm>
#include <cmath>

#include "backend/reference_kinds.h"

namespace ddp::reference {
namespace {

// The mean and 1 / sqrt(variance + epsilon) that normalise a channel, and the updated running statistics.
struct Channel {
  double mean = 0;
  double inverse = 0;
  double running_mean = 0;
  double running_variance = 0;
};

// Calls f(element index) for all elements of a channel.
template <class F>
void each_element(const BatchNormSpec& s, std::int64_t channel, F f) {
  const std::int64_t plane = s.shape.height * s.shape.width;
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t i = 0; i < plane; ++i) f(at((n * s.shape.channels + channel) * plane + i));
  }
}

Channel statistics_of(const BatchNormSpec& s, const Inputs& in, std::int64_t channel) {
  Channel c;
  c.running_mean = in.statistics[at(channel)];
  c.running_variance = in.statistics[at(s.shape.channels + channel)];
  const auto count = static_cast<double>(s.batch * s.shape.height * s.shape.width);
  const auto epsilon = static_cast<double>(s.epsilon);
  const auto momentum = static_cast<double>(s.momentum);
  if (!in.training || s.frozen || count == 0) {
    c.mean = c.running_mean;
    c.inverse = 1 / std::sqrt(c.running_variance + epsilon);
    return c;
  }
  double squares = 0;
  each_element(s, channel, [&](std::size_t i) { c.mean += in.x()[i] / count; });
  each_element(s, channel, [&](std::size_t i) { squares += (in.x()[i] - c.mean) * (in.x()[i] - c.mean); });
  c.inverse = 1 / std::sqrt(squares / count + epsilon);
  c.running_mean += momentum * (c.mean - c.running_mean);
  c.running_variance += momentum * (squares / std::max(1.0, count - 1) - c.running_variance);
  return c;
}

// Adds the input bias, if there is one, to x.
Inputs biased(const BatchNormSpec& s, Inputs in) {
  for (std::int64_t channel = 0; s.input_bias && channel < s.shape.channels; ++channel) {
    each_element(s, channel, [&](std::size_t i) { in.x()[i] += in.parameters.input_bias[at(channel)]; });
  }
  return in;
}

// The result before the activation.
Values normalised(const BatchNormSpec& s, const Inputs& in) {
  Values y(in.x().size());
  for (std::int64_t channel = 0; channel < s.shape.channels; ++channel) {
    const Channel c = statistics_of(s, in, channel);
    each_element(s, channel, [&](std::size_t i) {
      y[i] = in.parameters.weight[at(channel)] * (in.x()[i] - c.mean) * c.inverse + in.parameters.bias[at(channel)];
      if (s.add) y[i] += in.inputs[1][i];
    });
  }
  return y;
}

// The base of the power by which an element is divided.
double response(const LrnSpec& s, const Values& x, std::int64_t n, std::int64_t channel, std::int64_t position) {
  const std::int64_t plane = s.shape.height * s.shape.width;
  double sum = 0;
  for (std::int64_t c = channel - s.size / 2; c <= channel + (s.size - 1) / 2; ++c) {
    if (c < 0 || c >= s.shape.channels) continue;
    const double value = x[at((n * s.shape.channels + c) * plane + position)];
    sum += value * value;
  }
  return static_cast<double>(s.k) + static_cast<double>(s.alpha) / static_cast<double>(s.size) * sum;
}

// Calls f(sample, channel, position, element index).
template <class F>
void each_place(const LrnSpec& s, F f) {
  const std::int64_t plane = s.shape.height * s.shape.width;
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t c = 0; c < s.shape.channels; ++c) {
      for (std::int64_t i = 0; i < plane; ++i) f(n, c, i, at((n * s.shape.channels + c) * plane + i));
    }
  }
}

}  // namespace

Outputs normalise(const BatchNormSpec& s, const Inputs& unbiased) {
  const Inputs in = biased(s, unbiased);
  Outputs out{activate(s.activation, normalised(s, in)), in.statistics};
  for (std::int64_t channel = 0; channel < s.shape.channels; ++channel) {
    const Channel c = statistics_of(s, in, channel);
    out.statistics[at(channel)] = c.running_mean;
    out.statistics[at(s.shape.channels + channel)] = c.running_variance;
  }
  return out;
}

// With x' the normalised input and n elements: dx = weight * inverse * (dy - sum(dy) / n - x' * sum(dy * x') / n). Frozen
// statistics do not depend on x: dx = weight * inverse * dy.
Gradients normalise_backward(const BatchNormSpec& s, const Inputs& unbiased, const Values& dy) {
  const Inputs in = biased(s, unbiased);
  const Values dpre = activate_backward(s.activation, normalised(s, in), dy);
  Gradients g{.inputs = {Values(in.x().size())}};
  if (s.add) g.inputs.push_back(dpre);
  for (std::int64_t channel = 0; channel < s.shape.channels; ++channel) {
    const Channel c = statistics_of(s, in, channel);
    double sum = 0;
    double product = 0;
    double count = 0;
    each_element(s, channel, [&](std::size_t i) {
      sum += dpre[i];
      product += dpre[i] * (in.x()[i] - c.mean) * c.inverse;
      ++count;
    });
    const double share = s.frozen ? 0 : 1 / count;
    each_element(s, channel, [&](std::size_t i) {
      const double x = (in.x()[i] - c.mean) * c.inverse;
      g.dx()[i] = in.parameters.weight[at(channel)] * c.inverse * (dpre[i] - sum * share - x * product * share);
    });
    g.parameters.weight.push_back(product);
    g.parameters.bias.push_back(sum);
    if (!s.input_bias) continue;
    double input_sum = 0;
    each_element(s, channel, [&](std::size_t i) { input_sum += g.dx()[i]; });
    g.parameters.input_bias.push_back(input_sum);
  }
  return g;
}

std::vector<bool> near_kinks(const OpSpec& spec, const Inputs& in, double distance) {
  const auto* s = std::get_if<BatchNormSpec>(&spec);
  if (s == nullptr || s->activation == Activation::none) return {};
  std::vector<bool> near;
  for (const double y : normalised(*s, in)) {
    near.push_back(std::abs(y) < distance || (s->activation == Activation::relu6 && std::abs(y - 6) < distance));
  }
  return near;
}

namespace {

// The indices of the values that are normalised together, with the channel of each.
struct NormSet {
  std::vector<std::size_t> places;
  std::vector<std::size_t> channels;
  double mean = 0;
  double inverse = 0;
};

std::vector<NormSet> sets_of(const SampleNormSpec& s, const Values& x) {
  const std::int64_t plane = s.shape.height * s.shape.width;
  const std::int64_t per_group = s.shape.channels / s.groups;
  std::vector<NormSet> sets(at(s.batch * s.sets()));
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t c = 0; c < s.shape.channels; ++c) {
      for (std::int64_t i = 0; i < plane; ++i) {
        NormSet& set = sets[at(s.over == NormOver::channels ? n * plane + i : n * s.groups + c / per_group)];
        set.places.push_back(at((n * s.shape.channels + c) * plane + i));
        set.channels.push_back(at(c));
      }
    }
  }
  for (NormSet& set : sets) {
    const auto count = static_cast<double>(set.places.size());
    double squares = 0;
    for (const std::size_t i : set.places) set.mean += x[i] / count;
    for (const std::size_t i : set.places) squares += (x[i] - set.mean) * (x[i] - set.mean);
    set.inverse = 1 / std::sqrt(squares / count + static_cast<double>(s.epsilon));
  }
  return sets;
}

}  // namespace

double largest_factor(const SampleNormSpec& spec, const Values& x) {
  double most = 0;
  for (const NormSet& set : sets_of(spec, x)) most = std::max(most, set.inverse);
  return most;
}

Values normalise(const SampleNormSpec& s, const Inputs& in) {
  Values y(in.x().size());
  for (const NormSet& set : sets_of(s, in.x())) {
    for (std::size_t k = 0; k < set.places.size(); ++k) {
      const double normal = (in.x()[set.places[k]] - set.mean) * set.inverse;
      y[set.places[k]] = in.parameters.weight[set.channels[k]] * normal + in.parameters.bias[set.channels[k]];
    }
  }
  return y;
}

Gradients normalise_backward(const SampleNormSpec& s, const Inputs& in, const Values& dy) {
  Gradients g;
  g.dx().assign(in.x().size(), 0.0);
  g.parameters.weight.assign(at(s.shape.channels), 0.0);
  g.parameters.bias.assign(at(s.shape.channels), 0.0);
  for (const NormSet& set : sets_of(s, in.x())) {
    const auto count = static_cast<double>(set.places.size());
    double sum = 0;
    double product = 0;
    for (std::size_t k = 0; k < set.places.size(); ++k) {
      const double d = dy[set.places[k]];
      const double normal = (in.x()[set.places[k]] - set.mean) * set.inverse;
      g.parameters.bias[set.channels[k]] += d;
      g.parameters.weight[set.channels[k]] += d * normal;
      sum += d * in.parameters.weight[set.channels[k]] / count;
      product += d * in.parameters.weight[set.channels[k]] * normal / count;
    }
    for (std::size_t k = 0; k < set.places.size(); ++k) {
      const std::size_t i = set.places[k];
      const double normal = (in.x()[i] - set.mean) * set.inverse;
      g.dx()[i] = set.inverse * (dy[i] * in.parameters.weight[set.channels[k]] - sum - normal * product);
    }
  }
  return g;
}

Values respond(const LrnSpec& s, const Values& x) {
  Values y(x.size());
  each_place(s, [&](std::int64_t n, std::int64_t c, std::int64_t position, std::size_t i) {
    y[i] = x[i] * std::pow(response(s, x, n, c, position), -static_cast<double>(s.beta));
  });
  return y;
}

// Each output contributes a gradient to all inputs of its window.
Values respond_backward(const LrnSpec& s, const Values& x, const Values& dy) {
  const auto beta = static_cast<double>(s.beta);
  const double share = static_cast<double>(s.alpha) / static_cast<double>(s.size);
  const std::int64_t plane = s.shape.height * s.shape.width;
  Values dx(x.size(), 0.0);
  each_place(s, [&](std::int64_t n, std::int64_t channel, std::int64_t position, std::size_t i) {
    const double sum = response(s, x, n, channel, position);
    dx[i] += dy[i] * std::pow(sum, -beta);
    for (std::int64_t c = channel - s.size / 2; c <= channel + (s.size - 1) / 2; ++c) {
      if (c < 0 || c >= s.shape.channels) continue;
      const std::size_t j = at((n * s.shape.channels + c) * plane + position);
      dx[j] -= dy[i] * x[i] * beta * std::pow(sum, -beta - 1) * 2 * share * x[j];
    }
  });
  return dx;
}

}  // namespace ddp::reference
