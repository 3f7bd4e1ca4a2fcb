#include "backend/reference.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "backend/arithmetic.h"
#include "backend/reference_kinds.h"
#include "base/overloaded.h"

namespace ddp::reference {
namespace {

// Whether the element `place` belongs to window `i` of adaptive pooling, by PyTorch's rule in real numbers.
bool covers(std::int64_t place, std::int64_t i, std::int64_t size, std::int64_t results) {
  const double scale = static_cast<double>(size) / static_cast<double>(results);
  const auto at_place = static_cast<double>(place);
  return at_place >= std::floor(static_cast<double>(i) * scale) &&
         at_place < std::ceil(static_cast<double>(i + 1) * scale);
}

template <class F>
void each_adaptive_element(const PoolSpec& s, F f) {
  const Shape out = s.output();
  for (std::int64_t i = 0; i < s.batch * s.input.elements(); ++i) {
    const std::int64_t plane = i / (s.input.height * s.input.width);
    for (std::int64_t y = 0; y < out.height; ++y) {
      for (std::int64_t x = 0; x < out.width; ++x) {
        if (!covers(i / s.input.width % s.input.height, y, s.input.height, out.height)) continue;
        if (!covers(i % s.input.width, x, s.input.width, out.width)) continue;
        f(at(i), at((plane * out.height + y) * out.width + x));
      }
    }
  }
}

// Calls f(input index, output index) for each window element that is not padding.
template <class F>
void each_window_element(const PoolSpec& s, F f) {
  if (s.adaptive()) return each_adaptive_element(s, f);
  const Shape out = s.output();
  for (std::int64_t plane = 0; plane < s.batch * s.input.channels; ++plane) {
    for (std::int64_t y = 0; y < out.height; ++y) {
      for (std::int64_t x = 0; x < out.width; ++x) {
        for (std::int64_t r = 0; r < s.window.height; ++r) {
          for (std::int64_t k = 0; k < s.window.width; ++k) {
            const std::int64_t row =
                y * s.window.stride.vertical + r * s.window.dilation.vertical - s.window.padding.top;
            const std::int64_t column =
                x * s.window.stride.horizontal + k * s.window.dilation.horizontal - s.window.padding.left;
            if (row < 0 || row >= s.input.height || column < 0 || column >= s.input.width) continue;
            f(at((plane * s.input.height + row) * s.input.width + column),
              at((plane * out.height + y) * out.width + x));
          }
        }
      }
    }
  }
}

// The divisors of an average.
Values divisors(const PoolSpec& s) {
  Values counts(at(s.batch * s.output().elements()), static_cast<double>(s.window.height * s.window.width));
  if (s.count_padding && !s.adaptive()) return counts;
  std::fill(counts.begin(), counts.end(), 0.0);
  each_window_element(s, [&](std::size_t, std::size_t out) { ++counts[out]; });
  return counts;
}

// 0 for dropped elements, otherwise the scale factor.
Values dropout_factors(const DropoutSpec& s, const Inputs& in) {
  Values factors(in.x().size(), 1.0);
  if (!in.training) return factors;
  const auto elements = at(s.shape.elements());
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const std::size_t channel = i % elements / at(s.shape.height * s.shape.width);
    const std::size_t unit = s.unit == DropoutUnit::element   ? i % elements
                             : s.unit == DropoutUnit::channel ? channel
                                                              : 0;
    const bool kept = dropout_keeps(in.keys[i / elements], s.stream, static_cast<std::uint32_t>(unit), s.rate);
    factors[i] = kept ? 1 / (1 - static_cast<double>(s.rate)) : 0;
  }
  return factors;
}

Values product(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] *= b[i];
  return a;
}

Values sum(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

std::size_t prelu_weight(const PreluSpec& s, std::size_t i) {
  if (s.shared) return 0;
  return i % at(s.shape.elements()) / at(s.shape.height * s.shape.width);
}

// 1 for positive values, otherwise the weight.
Values prelu_factors(const PreluSpec& s, const Inputs& in) {
  Values factors(in.x().size(), 1.0);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (in.x()[i] <= 0) factors[i] = in.parameters.weight[prelu_weight(s, i)];
  }
  return factors;
}

Gradients prelu_backward(const PreluSpec& s, const Inputs& in, const Values& dy) {
  Gradients g{.inputs = {product(dy, prelu_factors(s, in))}};
  g.parameters.weight.assign(in.parameters.weight.size(), 0.0);
  for (std::size_t i = 0; i < in.x().size(); ++i) {
    if (in.x()[i] <= 0) g.parameters.weight[prelu_weight(s, i)] += dy[i] * in.x()[i];
  }
  return g;
}

Values multiply(const LinearSpec& s, const Inputs& in) {
  Values y(at(s.batch * s.outputs));
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t o = 0; o < s.outputs; ++o) {
      double total = s.bias ? in.parameters.bias[at(o)] : 0;
      for (std::int64_t i = 0; i < s.inputs; ++i) {
        total += in.parameters.weight[at(o * s.inputs + i)] * in.x()[at(n * s.inputs + i)];
      }
      y[at(n * s.outputs + o)] = total;
    }
  }
  return y;
}

Gradients multiply_backward(const LinearSpec& s, const Inputs& in, const Values& dy) {
  const Values dpre = s.relu ? activate_backward(Activation::relu, multiply(s, in), dy) : dy;
  Gradients g;
  g.dx().assign(in.x().size(), 0.0);
  g.parameters.weight.assign(at(s.inputs * s.outputs), 0.0);
  g.parameters.bias.assign(at(s.bias ? s.outputs : 0), 0.0);
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t o = 0; o < s.outputs; ++o) {
      const double d = dpre[at(n * s.outputs + o)];
      if (s.bias) g.parameters.bias[at(o)] += d;
      for (std::int64_t i = 0; i < s.inputs; ++i) {
        g.dx()[at(n * s.inputs + i)] += d * in.parameters.weight[at(o * s.inputs + i)];
        g.parameters.weight[at(o * s.inputs + i)] += d * in.x()[at(n * s.inputs + i)];
      }
    }
  }
  return g;
}

}  // namespace

Values activate(Activation activation, const Values& x) {
  Values y = x;
  for (double& value : y) {
    switch (activation) {
      case Activation::none:
        break;
      case Activation::relu:
        value = std::max(value, 0.0);
        break;
      case Activation::relu6:
        value = std::clamp(value, 0.0, 6.0);
        break;
      case Activation::sigmoid:
        value = 1 / (1 + std::exp(-value));
        break;
      case Activation::tanh:
        value = std::tanh(value);
        break;
    }
  }
  return y;
}

Values activate_backward(Activation activation, const Values& x, const Values& dy) {
  const Values y = activate(activation, x);
  Values dx = dy;
  for (std::size_t i = 0; i < dx.size(); ++i) {
    switch (activation) {
      case Activation::none:
        break;
      case Activation::relu:
        dx[i] *= x[i] > 0 ? 1 : 0;
        break;
      case Activation::relu6:
        dx[i] *= x[i] > 0 && x[i] < 6 ? 1 : 0;
        break;
      case Activation::sigmoid:
        dx[i] *= y[i] * (1 - y[i]);
        break;
      case Activation::tanh:
        dx[i] *= 1 - y[i] * y[i];
        break;
    }
  }
  return dx;
}

Values pool(const PoolSpec& s, const Values& x) {
  const bool average = s.kind == PoolSpec::Kind::average;
  Values y(at(s.batch * s.output().elements()), average ? 0.0 : -1e300);
  const Values counts = divisors(s);
  each_window_element(s, [&](std::size_t in, std::size_t out) {
    y[out] = average ? y[out] + x[in] / counts[out] : std::max(y[out], x[in]);
  });
  return y;
}

Values pool_backward(const PoolSpec& s, const Values& x, const Values& dy) {
  Values dx(x.size(), 0.0);
  const Values y = pool(s, x);
  const Values counts = divisors(s);
  std::vector<bool> sent(y.size(), false);
  each_window_element(s, [&](std::size_t in, std::size_t out) {
    if (s.kind == PoolSpec::Kind::average) {
      dx[in] += dy[out] / counts[out];
    } else if (!sent[out] && x[in] == y[out]) {
      dx[in] += dy[out];
      sent[out] = true;
    }
  });
  return dx;
}

// The index in [H][W][C] of each element of [C][H][W].
std::vector<std::size_t> channels_last_places(const ChannelsLastSpec& s) {
  std::vector<std::size_t> places;
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t c = 0; c < s.input.channels; ++c) {
      for (std::int64_t p = 0; p < s.input.height * s.input.width; ++p) {
        places.push_back(at(n * s.input.elements() + p * s.input.channels + c));
      }
    }
  }
  return places;
}

// Softmax of each position, and its gradient. Calls f with the index of the first channel of each.
template <class F>
void each_position(const SoftmaxSpec& s, F f) {
  const std::int64_t plane = s.shape.height * s.shape.width;
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t p = 0; p < plane; ++p) f(n * s.shape.elements() + p);
  }
}

Values softmax(const SoftmaxSpec& s, const Values& x) {
  Values y = x;
  const std::int64_t plane = s.shape.height * s.shape.width;
  each_position(s, [&](std::int64_t first) {
    double most = -HUGE_VAL;
    double sum = 0;
    for (std::int64_t c = 0; c < s.shape.channels; ++c) most = std::max(most, x[at(first + c * plane)]);
    for (std::int64_t c = 0; c < s.shape.channels; ++c) {
      sum += y[at(first + c * plane)] = std::exp(x[at(first + c * plane)] - most);
    }
    for (std::int64_t c = 0; c < s.shape.channels; ++c) y[at(first + c * plane)] /= sum;
  });
  return y;
}

Values softmax_backward(const SoftmaxSpec& s, const Values& x, const Values& dy) {
  const Values y = softmax(s, x);
  Values dx = dy;
  const std::int64_t plane = s.shape.height * s.shape.width;
  each_position(s, [&](std::int64_t first) {
    double sum = 0;
    for (std::int64_t c = 0; c < s.shape.channels; ++c) sum += y[at(first + c * plane)] * dy[at(first + c * plane)];
    for (std::int64_t c = 0; c < s.shape.channels; ++c) {
      const std::size_t i = at(first + c * plane);
      dx[i] = y[i] * (dy[i] - sum);
    }
  });
  return dx;
}

// The index of the factor of each element.
std::vector<std::size_t> factor_places(const ProductSpec& s) {
  std::vector<std::size_t> places(at(s.batch * s.shape.elements()));
  const std::size_t shared = s.per_channel ? at(s.shape.height * s.shape.width) : 1;
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = i / shared;
  return places;
}

Values multiply(const ProductSpec& s, const Inputs& in) {
  Values y = in.x();
  const std::vector<std::size_t> places = factor_places(s);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] *= in.inputs[1][places[i]];
  return y;
}

Gradients multiply_backward(const ProductSpec& s, const Inputs& in, const Values& dy) {
  Gradients g{.inputs = {dy, Values(in.inputs[1].size())}};
  const std::vector<std::size_t> places = factor_places(s);
  for (std::size_t i = 0; i < dy.size(); ++i) {
    g.dx()[i] *= in.inputs[1][places[i]];
    g.inputs[1][places[i]] += dy[i] * in.x()[i];
  }
  return g;
}

// For each element of the output, the index of its source among the elements of x, followed by those of further inputs.
std::vector<std::size_t> sources(const ConcatSpec& s) {
  std::vector<std::size_t> places;
  const std::int64_t second = s.further_input(1).elements();
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t i = 0; i < s.input.elements(); ++i) places.push_back(at(n * s.input.elements() + i));
    for (std::int64_t i = 0; i < second; ++i) places.push_back(at(s.batch * s.input.elements() + n * second + i));
  }
  return places;
}
std::vector<std::size_t> sources(const ChannelSelectSpec& s) {
  std::vector<std::size_t> places;
  const std::int64_t plane = s.input.height * s.input.width;
  for (std::int64_t n = 0; n < s.batch; ++n) {
    // [groups][count / groups] transposed.
    for (std::int64_t within = 0; within < s.count / s.groups; ++within) {
      for (std::int64_t group = 0; group < s.groups; ++group) {
        const std::int64_t channel = s.first + group * (s.count / s.groups) + within;
        for (std::int64_t p = 0; p < plane; ++p) places.push_back(at((n * s.input.channels + channel) * plane + p));
      }
    }
  }
  return places;
}

template <class Spec>
Values copy(const Spec& s, const Inputs& in) {
  Values all;
  for (const Values& input : in.inputs) all.insert(all.end(), input.begin(), input.end());
  Values y;
  for (const std::size_t place : sources(s)) y.push_back(all[place]);
  return y;
}

template <class Spec>
Gradients copy_backward(const Spec& s, const Inputs& in, const Values& dy) {
  std::size_t elements = 0;
  for (const Values& input : in.inputs) elements += input.size();
  Values all(elements);
  const std::vector<std::size_t> places = sources(s);
  for (std::size_t i = 0; i < dy.size(); ++i) all[places[i]] += dy[i];
  Gradients g{.inputs = in.inputs};
  auto from = all.begin();
  for (Values& input : g.inputs) {
    input.assign(from, from + std::ssize(input));
    from += std::ssize(input);
  }
  return g;
}

// They read pixels and labels: ends_test.cpp has their definitions.
[[noreturn]] void refuse_end() { throw std::logic_error("the reference has no input and no loss"); }

Outputs forward(const OpSpec& spec, const Inputs& in) {
  return std::visit(Overloaded{[&](const ConvSpec& s) -> Outputs {
                                 return {convolve(s, in), {}};
                               },
                               [&](const ConvTransposeSpec& s) -> Outputs {
                                 return {convolve(s, in), {}};
                               },
                               [&](const PadSpec& s) -> Outputs {
                                 return {pad(s, in.x()), {}};
                               },
                               [&](const LinearSpec& s) -> Outputs {
                                 const Values y = multiply(s, in);
                                 return {s.relu ? activate(Activation::relu, y) : y, {}};
                               },
                               [&](const ActivationSpec& s) -> Outputs {
                                 return {activate(s.activation, in.x()), {}};
                               },
                               [&](const GeluSpec& s) -> Outputs {
                                 return {gelu(s, in.x()), {}};
                               },
                               [&](const SoftmaxSpec& s) -> Outputs {
                                 return {softmax(s, in.x()), {}};
                               },
                               [&](const PointwiseSpec& s) -> Outputs {
                                 return {apply(s, in.x()), {}};
                               },
                               [&](const ProductSpec& s) -> Outputs {
                                 return {multiply(s, in), {}};
                               },
                               [&](const OneOf<ConcatSpec, ChannelSelectSpec> auto& s) -> Outputs {
                                 return {copy(s, in), {}};
                               },
                               [&](const PoolSpec& s) -> Outputs {
                                 return {pool(s, in.x()), {}};
                               },
                               [&](const BatchNormSpec& s) -> Outputs { return normalise(s, in); },
                               [&](const PreluSpec& s) -> Outputs {
                                 return {product(in.x(), prelu_factors(s, in)), {}};
                               },
                               [&](const SampleNormSpec& s) -> Outputs {
                                 return {normalise(s, in), {}};
                               },
                               [&](const AddSpec& s) -> Outputs {
                                 return {activate(s.activation, sum(in.x(), in.inputs[1])), {}};
                               },
                               [&](const LrnSpec& s) -> Outputs {
                                 return {respond(s, in.x()), {}};
                               },
                               [&](const DropoutSpec& s) -> Outputs {
                                 return {product(in.x(), dropout_factors(s, in)), {}};
                               },
                               [&](const ReorderSpec& /*s*/) -> Outputs {
                                 return {in.x(), {}};
                               },
                               [&](const ChannelsLastSpec& s) -> Outputs {
                                 const std::vector<std::size_t> places = channels_last_places(s);
                                 Values y(in.x().size());
                                 for (std::size_t i = 0; i < y.size(); ++i) y[places[i]] = in.x()[i];
                                 return {y, {}};
                               },
                               [](const OneOf<InputSpec, LossSpec> auto& /*s*/) -> Outputs { refuse_end(); }},
                    spec);
}

Gradients backward(const OpSpec& spec, const Inputs& in, const Values& dy) {
  return std::visit(
      Overloaded{
          [&](const OneOf<ConvSpec, ConvTransposeSpec> auto& s) -> Gradients { return convolve_backward(s, in, dy); },
          [&](const PadSpec& s) -> Gradients { return {.inputs = {pad_backward(s, dy)}}; },
          [&](const LinearSpec& s) -> Gradients { return multiply_backward(s, in, dy); },
          [&](const ActivationSpec& s) -> Gradients {
            return {.inputs = {activate_backward(s.activation, in.x(), dy)}};
          },
          [&](const GeluSpec& s) -> Gradients { return {.inputs = {gelu_backward(s, in.x(), dy)}}; },
          [&](const SoftmaxSpec& s) -> Gradients { return {.inputs = {softmax_backward(s, in.x(), dy)}}; },
          [&](const PointwiseSpec& s) -> Gradients { return {.inputs = {apply_backward(s, in.x(), dy)}}; },
          [&](const ProductSpec& s) -> Gradients { return multiply_backward(s, in, dy); },
          [&](const OneOf<ConcatSpec, ChannelSelectSpec> auto& s) -> Gradients { return copy_backward(s, in, dy); },
          [&](const PoolSpec& s) -> Gradients { return {.inputs = {pool_backward(s, in.x(), dy)}}; },
          [&](const BatchNormSpec& s) -> Gradients { return normalise_backward(s, in, dy); },
          [&](const PreluSpec& s) -> Gradients { return prelu_backward(s, in, dy); },
          [&](const SampleNormSpec& s) -> Gradients { return normalise_backward(s, in, dy); },
          [&](const AddSpec& s) -> Gradients {
            const Values dx = activate_backward(s.activation, sum(in.x(), in.inputs[1]), dy);
            return {.inputs = {dx, dx}};
          },
          [&](const LrnSpec& s) -> Gradients { return {.inputs = {respond_backward(s, in.x(), dy)}}; },
          [&](const DropoutSpec& s) -> Gradients { return {.inputs = {product(dy, dropout_factors(s, in))}}; },
          [&](const ReorderSpec& /*s*/) -> Gradients { return {.inputs = {dy}}; },
          [&](const ChannelsLastSpec& s) -> Gradients {
            const std::vector<std::size_t> places = channels_last_places(s);
            Values dx(dy.size());
            for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = dy[places[i]];
            return {.inputs = {dx}};
          },
          [](const OneOf<InputSpec, LossSpec> auto& /*s*/) -> Gradients { refuse_end(); }},
      spec);
}

}  // namespace ddp::reference
