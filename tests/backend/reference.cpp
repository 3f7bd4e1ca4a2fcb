#include "backend/reference.h"

#include <cstddef>

namespace ddp::reference {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// Calls f(sample, out channel, in channel, tap offset in the weight, input index, output index) for each product of a
// convolution that does not fall on padding.
template <class F>
void each_product(const ConvSpec& s, F f) {
  const Shape out = s.convolved();
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t o = 0; o < out.channels; ++o) {
      for (std::int64_t y = 0; y < out.height; ++y) {
        for (std::int64_t x = 0; x < out.width; ++x) {
          const std::int64_t output = ((n * out.channels + o) * out.height + y) * out.width + x;
          for (std::int64_t c = 0; c < s.input.channels; ++c) {
            for (std::int64_t r = 0; r < s.kernel_h; ++r) {
              for (std::int64_t k = 0; k < s.kernel_w; ++k) {
                const std::int64_t row = y * s.stride + r - s.pad_top;
                const std::int64_t column = x * s.stride + k - s.pad_left;
                if (row < 0 || row >= s.input.height || column < 0 || column >= s.input.width) continue;
                const std::int64_t weight = ((o * s.input.channels + c) * s.kernel_h + r) * s.kernel_w + k;
                const std::int64_t input = ((n * s.input.channels + c) * s.input.height + row) * s.input.width + column;
                f(o, at(weight), at(input), at(output));
              }
            }
          }
        }
      }
    }
  }
}

Values relu(const Values& x) {
  Values y = x;
  for (double& value : y) value = value > 0 ? value : 0;
  return y;
}

Values relu_backward(const Values& x, const Values& dy) {
  Values dx = dy;
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = x[i] > 0 ? dy[i] : 0;
  return dx;
}

// Calls f(input index, output index) for each element of each window.
template <class F>
void each_window_element(const PoolSpec& s, F f) {
  const Shape out = s.output();
  for (std::int64_t plane = 0; plane < s.batch * s.input.channels; ++plane) {
    for (std::int64_t y = 0; y < out.height; ++y) {
      for (std::int64_t x = 0; x < out.width; ++x) {
        for (std::int64_t r = 0; r < s.window; ++r) {
          for (std::int64_t k = 0; k < s.window; ++k) {
            f(at((plane * s.input.height + y * s.stride + r) * s.input.width + x * s.stride + k),
              at((plane * out.height + y) * out.width + x));
          }
        }
      }
    }
  }
}

Values pool(const PoolSpec& s, const Values& x) {
  Values y(at(s.batch * s.output().elements()), s.kind == PoolSpec::Kind::average ? 0.0 : -1e300);
  const auto share = 1.0 / static_cast<double>(s.window * s.window);
  each_window_element(s, [&](std::size_t in, std::size_t out) {
    if (s.kind == PoolSpec::Kind::average) {
      y[out] += share * x[in];
    } else if (x[in] > y[out]) {
      y[out] = x[in];
    }
  });
  return y;
}

Values pool_backward(const PoolSpec& s, const Values& x, const Values& dy) {
  Values dx(x.size(), 0.0);
  const Values y = pool(s, x);
  std::vector<bool> sent(y.size(), false);
  const auto share = 1.0 / static_cast<double>(s.window * s.window);
  each_window_element(s, [&](std::size_t in, std::size_t out) {
    if (s.kind == PoolSpec::Kind::average) {
      dx[in] += share * dy[out];
    } else if (!sent[out] && x[in] == y[out]) {
      dx[in] += dy[out];
      sent[out] = true;
    }
  });
  return dx;
}

PoolSpec pool_after(const ConvSpec& s) {
  return {.batch = s.batch, .input = s.convolved(), .kind = PoolSpec::Kind::average, .window = 2, .stride = 2};
}

Values convolve(const ConvSpec& s, const Values& x, const Parameters& p) {
  const Shape out = s.convolved();
  Values y(at(s.batch * out.elements()));
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] = p.bias[i / at(out.height * out.width) % at(out.channels)];
  }
  each_product(s, [&](std::int64_t, std::size_t w, std::size_t in, std::size_t o) { y[o] += p.weight[w] * x[in]; });
  return y;
}

Gradients conv_backward(const ConvSpec& s, const Values& x, const Values& dy, const Parameters& p) {
  Values dpre = dy;
  if (s.relu) {
    const Values pre = convolve(s, x, p);
    if (s.average_pool) dpre = pool_backward(pool_after(s), relu(pre), dy);
    dpre = relu_backward(pre, dpre);
  }
  Gradients g{Values(x.size(), 0.0), {Values(p.weight.size(), 0.0), Values(p.bias.size(), 0.0)}};
  each_product(s, [&](std::int64_t, std::size_t w, std::size_t in, std::size_t o) {
    g.dx[in] += p.weight[w] * dpre[o];
    g.parameters.weight[w] += x[in] * dpre[o];
  });
  const Shape out = s.convolved();
  for (std::size_t i = 0; i < dpre.size(); ++i) {
    g.parameters.bias[i / at(out.height * out.width) % at(out.channels)] += dpre[i];
  }
  return g;
}

Values multiply(const LinearSpec& s, const Values& x, const Parameters& p) {
  Values y(at(s.batch * s.outputs));
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t o = 0; o < s.outputs; ++o) {
      double sum = p.bias[at(o)];
      for (std::int64_t i = 0; i < s.inputs; ++i) sum += p.weight[at(o * s.inputs + i)] * x[at(n * s.inputs + i)];
      y[at(n * s.outputs + o)] = sum;
    }
  }
  return y;
}

Gradients linear_backward(const LinearSpec& s, const Values& x, const Values& dy, const Parameters& p) {
  const Values dpre = s.relu ? relu_backward(multiply(s, x, p), dy) : dy;
  Gradients g{Values(x.size(), 0.0), {Values(p.weight.size(), 0.0), Values(p.bias.size(), 0.0)}};
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t o = 0; o < s.outputs; ++o) {
      const double d = dpre[at(n * s.outputs + o)];
      g.parameters.bias[at(o)] += d;
      for (std::int64_t i = 0; i < s.inputs; ++i) {
        g.dx[at(n * s.inputs + i)] += d * p.weight[at(o * s.inputs + i)];
        g.parameters.weight[at(o * s.inputs + i)] += d * x[at(n * s.inputs + i)];
      }
    }
  }
  return g;
}

}  // namespace

Values forward(const OpSpec& spec, const Values& x, const Parameters& p) {
  if (const auto* conv = std::get_if<ConvSpec>(&spec)) {
    Values y = convolve(*conv, x, p);
    if (conv->relu) y = relu(y);
    return conv->average_pool ? pool(pool_after(*conv), y) : y;
  }
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) {
    const Values y = multiply(*linear, x, p);
    return linear->relu ? relu(y) : y;
  }
  if (const auto* pooling = std::get_if<PoolSpec>(&spec)) return pool(*pooling, x);
  return std::holds_alternative<ReluSpec>(spec) ? relu(x) : x;
}

Gradients backward(const OpSpec& spec, const Values& x, const Values& dy, const Parameters& p) {
  if (const auto* conv = std::get_if<ConvSpec>(&spec)) return conv_backward(*conv, x, dy, p);
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) return linear_backward(*linear, x, dy, p);
  if (const auto* pooling = std::get_if<PoolSpec>(&spec)) return {pool_backward(*pooling, x, dy), {}};
  return {std::holds_alternative<ReluSpec>(spec) ? relu_backward(x, dy) : dy, {}};
}

std::int64_t weight_count(const OpSpec& spec) {
  if (const auto* conv = std::get_if<ConvSpec>(&spec)) {
    return conv->output_channels * conv->input.channels * conv->kernel_h * conv->kernel_w;
  }
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) return linear->inputs * linear->outputs;
  return 0;
}

std::int64_t bias_count(const OpSpec& spec) {
  if (const auto* conv = std::get_if<ConvSpec>(&spec)) return conv->output_channels;
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) return linear->outputs;
  return 0;
}

}  // namespace ddp::reference
