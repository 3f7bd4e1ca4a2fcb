#include "backend/reference_kinds.h"

namespace ddp::reference {
namespace {

// Calls f(weight index, input index, output index) for each product of a convolution, except with padding.
template <class F>
void each_product(const ConvSpec& s, F f) {
  const Shape out = s.convolved();
  const std::int64_t depth = s.input.channels / s.groups;
  const std::int64_t width = out.channels / s.groups;
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t o = 0; o < out.channels; ++o) {
      for (std::int64_t y = 0; y < out.height; ++y) {
        for (std::int64_t x = 0; x < out.width; ++x) {
          const std::int64_t output = ((n * out.channels + o) * out.height + y) * out.width + x;
          for (std::int64_t c = 0; c < depth; ++c) {
            const std::int64_t plane = n * s.input.channels + o / width * depth + c;
            for (std::int64_t r = 0; r < s.window.height; ++r) {
              for (std::int64_t k = 0; k < s.window.width; ++k) {
                const std::int64_t row =
                    y * s.window.stride.vertical + r * s.window.dilation.vertical - s.window.padding.top;
                const std::int64_t column =
                    x * s.window.stride.horizontal + k * s.window.dilation.horizontal - s.window.padding.left;
                if (row < 0 || row >= s.input.height || column < 0 || column >= s.input.width) continue;
                const std::int64_t weight = ((o * depth + c) * s.window.height + r) * s.window.width + k;
                f(at(weight), at((plane * s.input.height + row) * s.input.width + column), at(output));
              }
            }
          }
        }
      }
    }
  }
}

// Calls f(weight index, input index, output index) for each product of a transposed convolution that is not cut off.
template <class F>
void each_spread(const ConvTransposeSpec& s, F f) {
  const Shape out = s.output();
  const std::int64_t depth = s.input.channels / s.groups;
  const std::int64_t width = out.channels / s.groups;
  const std::int64_t taps = s.window.height * s.window.width;
  for (std::int64_t i = 0; i < s.batch * s.input.elements(); ++i) {
    const std::int64_t column = i % s.input.width * s.window.stride.horizontal - s.window.padding.left;
    const std::int64_t row = i / s.input.width % s.input.height * s.window.stride.vertical - s.window.padding.top;
    const std::int64_t channel = i / (s.input.width * s.input.height) % s.input.channels;
    const std::int64_t n = i / s.input.elements();
    for (std::int64_t w = 0; w < width * taps; ++w) {
      const std::int64_t y = row + w % taps / s.window.width * s.window.dilation.vertical;
      const std::int64_t x = column + w % s.window.width * s.window.dilation.horizontal;
      if (y < 0 || y >= out.height || x < 0 || x >= out.width) continue;
      const std::int64_t output = channel / depth * width + w / taps;
      f(at(channel * width * taps + w), at(i), at(((n * out.channels + output) * out.height + y) * out.width + x));
    }
  }
}

// The convolution alone, without bias, ReLU or pooling.
Values products(const ConvSpec& s, const Inputs& in) {
  const Shape out = s.convolved();
  Values y(at(s.batch * out.elements()), 0.0);
  if (s.bias) {
    for (std::size_t i = 0; i < y.size(); ++i)
      y[i] = in.parameters.bias[i / at(out.height * out.width) % at(out.channels)];
  }
  each_product(s, [&](std::size_t w, std::size_t x, std::size_t o) { y[o] += in.parameters.weight[w] * in.x()[x]; });
  return y;
}

PoolSpec pool_after(const ConvSpec& s) { return {.batch = s.batch, .input = s.convolved()}; }

}  // namespace

Values convolve(const ConvSpec& s, const Inputs& in) {
  Values y = products(s, in);
  if (s.relu) y = activate(Activation::relu, y);
  return s.average_pool ? pool(pool_after(s), y) : y;
}

Gradients convolve_backward(const ConvSpec& s, const Inputs& in, const Values& dy) {
  Values dpre = dy;
  if (s.relu) {
    const Values pre = products(s, in);
    if (s.average_pool) dpre = pool_backward(pool_after(s), activate(Activation::relu, pre), dy);
    dpre = activate_backward(Activation::relu, pre, dpre);
  }
  Gradients g;
  g.dx().assign(in.x().size(), 0.0);
  g.parameters.weight.assign(at(s.weights()), 0.0);
  g.parameters.bias.assign(at(s.bias ? s.output_channels : 0), 0.0);
  each_product(s, [&](std::size_t w, std::size_t x, std::size_t o) {
    g.dx()[x] += in.parameters.weight[w] * dpre[o];
    g.parameters.weight[w] += in.x()[x] * dpre[o];
  });
  const Shape out = s.convolved();
  for (std::size_t i = 0; s.bias && i < dpre.size(); ++i) {
    g.parameters.bias[i / at(out.height * out.width) % at(out.channels)] += dpre[i];
  }
  return g;
}

// By its definition in PyTorch: each element of x is spread over the output by the weights.
Values convolve(const ConvTransposeSpec& s, const Inputs& in) {
  const Shape out = s.output();
  Values y(at(s.batch * out.elements()), 0.0);
  for (std::size_t i = 0; s.bias && i < y.size(); ++i) {
    y[i] = in.parameters.bias[i / at(out.height * out.width) % at(out.channels)];
  }
  each_spread(s, [&](std::size_t w, std::size_t x, std::size_t o) { y[o] += in.parameters.weight[w] * in.x()[x]; });
  return y;
}

Gradients convolve_backward(const ConvTransposeSpec& s, const Inputs& in, const Values& dy) {
  Gradients g;
  g.dx().assign(in.x().size(), 0.0);
  g.parameters.weight.assign(in.parameters.weight.size(), 0.0);
  g.parameters.bias.assign(at(s.bias ? s.output_channels : 0), 0.0);
  each_spread(s, [&](std::size_t w, std::size_t x, std::size_t o) {
    g.dx()[x] += in.parameters.weight[w] * dy[o];
    g.parameters.weight[w] += in.x()[x] * dy[o];
  });
  const Shape out = s.output();
  for (std::size_t i = 0; s.bias && i < dy.size(); ++i) {
    g.parameters.bias[i / at(out.height * out.width) % at(out.channels)] += dy[i];
  }
  return g;
}

}  // namespace ddp::reference
