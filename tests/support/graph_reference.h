// Inference of a graph in double precision, straight from the definitions: the reference for all comparisons.
//
//   GraphReference reference(graph, parameters, statistics);
//   std::vector<double> logits = reference.logits(image);   // of one image [C][H][W]
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "model/graph.h"

namespace ddp {

class GraphReference {
 public:
  GraphReference(const Graph& graph, std::span<const float> parameters, std::span<const float> statistics)
      : graph_(graph), parameters_(parameters), statistics_(statistics) {}

  std::vector<double> logits(std::span<const float> image) {
    values_.assign(graph_.layers().size(), {});
    values_[0].assign(image.begin(), image.end());
    for (std::size_t i = 1; i < values_.size(); ++i) {
      index_ = static_cast<int>(i);
      layer_ = &graph_.layers()[i];
      x_ = &values_[static_cast<std::size_t>(layer_->inputs[0])];
      in_ = graph_.shape(layer_->inputs[0]);
      y_.assign(static_cast<std::size_t>(layer_->output.elements()), 0);
      std::visit([&](const auto& kind) { compute(kind); }, layer_->kind);
      values_[i] = y_;
    }
    return values_.back();
  }

 private:
  std::vector<double> parameter_values(bool bias) const {
    for (const Parameter& p : graph_.parameters()) {
      if (p.layer != index_ || p.bias != bias) continue;
      const auto part = parameters_.subspan(static_cast<std::size_t>(p.offset), static_cast<std::size_t>(p.elements()));
      return {part.begin(), part.end()};
    }
    return std::vector<double>(static_cast<std::size_t>(layer_->output.channels), 0.0);
  }
  double x(std::int64_t c, std::int64_t h, std::int64_t w) const {
    return (*x_)[static_cast<std::size_t>((c * in_.height + h) * in_.width + w)];
  }
  bool inside(std::int64_t h, std::int64_t w) const { return h >= 0 && w >= 0 && h < in_.height && w < in_.width; }
  template <class F>
  void each_output(F value) {
    const Shape& out = layer_->output;
    std::size_t at = 0;
    for (std::int64_t c = 0; c < out.channels; ++c) {
      for (std::int64_t h = 0; h < out.height; ++h) {
        for (std::int64_t w = 0; w < out.width; ++w) y_[at++] = value(c, h, w);
      }
    }
  }

  void compute(const InputLayer& /*kind*/) {}
  void compute(const FlattenLayer& flatten) {
    y_ = *x_;
    if (!flatten.channels_last) return;
    std::size_t at = 0;
    for (std::int64_t h = 0; h < in_.height; ++h) {
      for (std::int64_t w = 0; w < in_.width; ++w) {
        for (std::int64_t c = 0; c < in_.channels; ++c) y_[at++] = x(c, h, w);
      }
    }
  }
  void compute(const AffineLayer& /*kind*/) {
    const std::vector<double> scale = parameter_values(false);
    const std::vector<double> shift = parameter_values(true);
    each_output([&](std::int64_t c, std::int64_t h, std::int64_t w) {
      return scale[static_cast<std::size_t>(c)] * x(c, h, w) + shift[static_cast<std::size_t>(c)];
    });
  }
  void compute(const DropoutLayer& /*kind*/) { y_ = *x_; }
  void compute(const AddLayer& /*kind*/) {
    const std::vector<double>& other = values_[static_cast<std::size_t>(layer_->inputs[1])];
    for (std::size_t i = 0; i < y_.size(); ++i) y_[i] = (*x_)[i] + other[i];
  }
  void compute(const ConvLayer& conv) {
    const std::vector<double> weight = parameter_values(false);
    const std::vector<double> bias = parameter_values(true);
    const std::int64_t group_in = in_.channels / conv.groups;
    const std::int64_t group_out = conv.channels / conv.groups;
    each_output([&](std::int64_t o, std::int64_t row, std::int64_t column) {
      double sum = bias[static_cast<std::size_t>(o)];
      for (std::int64_t c = 0; c < group_in; ++c) {
        for (std::int64_t i = 0; i < conv.window.height; ++i) {
          for (std::int64_t j = 0; j < conv.window.width; ++j) {
            const std::int64_t h =
                row * conv.window.stride.vertical + i * conv.window.dilation.vertical - conv.window.padding.top;
            const std::int64_t w =
                column * conv.window.stride.horizontal + j * conv.window.dilation.horizontal - conv.window.padding.left;
            if (!inside(h, w)) continue;
            const std::int64_t at = ((o * group_in + c) * conv.window.height + i) * conv.window.width + j;
            sum += weight[static_cast<std::size_t>(at)] * x(o / group_out * group_in + c, h, w);
          }
        }
      }
      return sum;
    });
  }
  void compute(const ConvTransposeLayer& conv) {
    const std::vector<double> weight = parameter_values(false);
    const std::vector<double> bias = parameter_values(true);
    const Shape& out = layer_->output;
    const std::int64_t group_in = in_.channels / conv.groups;
    const std::int64_t group_out = conv.channels / conv.groups;
    each_output([&](std::int64_t o, std::int64_t /*row*/, std::int64_t /*column*/) {
      return bias[static_cast<std::size_t>(o)];
    });
    for (std::int64_t c = 0; c < in_.channels; ++c) {
      for (std::int64_t at = 0; at < group_out * conv.window.elements(); ++at) {
        const std::int64_t o = c / group_in * group_out + at / conv.window.elements();
        const std::int64_t tap = at % conv.window.elements();
        const double w = weight[static_cast<std::size_t>(c * group_out * conv.window.elements() + at)];
        for (std::int64_t i = 0; i < in_.height * in_.width; ++i) {
          const std::int64_t row = i / in_.width * conv.window.stride.vertical +
                                   tap / conv.window.width * conv.window.dilation.vertical - conv.window.padding.top;
          const std::int64_t column = i % in_.width * conv.window.stride.horizontal +
                                      tap % conv.window.width * conv.window.dilation.horizontal -
                                      conv.window.padding.left;
          if (row < 0 || row >= out.height || column < 0 || column >= out.width) continue;
          y_[static_cast<std::size_t>((o * out.height + row) * out.width + column)] +=
              w * x(c, i / in_.width, i % in_.width);
        }
      }
    }
  }
  void compute(const PadLayer& pad) {
    each_output([&](std::int64_t c, std::int64_t row, std::int64_t column) {
      return x(c, padded_source(row - pad.padding.top, in_.height, pad.mode),
               padded_source(column - pad.padding.left, in_.width, pad.mode));
    });
  }
  void compute(const LinearLayer& linear) {
    const std::vector<double> weight = parameter_values(false);
    y_ = parameter_values(true);
    for (std::size_t o = 0; o < static_cast<std::size_t>(linear.outputs); ++o) {
      for (std::size_t i = 0; i < x_->size(); ++i) y_[o] += weight[o * x_->size() + i] * (*x_)[i];
    }
  }
  void compute(const BatchNormLayer& norm) {
    std::int64_t mean = -1;
    std::int64_t variance = -1;
    for (const Statistic& s : graph_.statistics()) {
      if (s.layer == index_) (mean < 0 ? mean : variance) = s.offset;
    }
    const std::vector<double> weight = parameter_values(false);
    const std::vector<double> bias = parameter_values(true);
    each_output([&](std::int64_t c, std::int64_t h, std::int64_t w) {
      const double m = statistics_[static_cast<std::size_t>(mean + c)];
      const double v = statistics_[static_cast<std::size_t>(variance + c)];
      const auto at = static_cast<std::size_t>(c);
      return weight[at] * (x(c, h, w) - m) / std::sqrt(v + norm.epsilon) + bias[at];
    });
  }
  void compute(const PreluLayer& prelu) {
    const std::vector<double> weight = parameter_values(false);
    each_output([&](std::int64_t c, std::int64_t h, std::int64_t w) {
      const double v = x(c, h, w);
      return v > 0 ? v : weight[prelu.shared ? 0 : static_cast<std::size_t>(c)] * v;
    });
  }
  void compute(const SampleNormLayer& norm) {
    const std::vector<double> weight = parameter_values(false);
    const std::vector<double> bias = parameter_values(true);
    const std::int64_t per_group = in_.channels / norm.groups;
    each_output([&](std::int64_t c, std::int64_t h, std::int64_t w) {
      double count = 0;
      double mean = 0;
      double squares = 0;
      // Two passes, over the channels of the position or over all positions of the group.
      for (const bool squared : {false, true}) {
        for (std::int64_t i = 0; i < in_.channels; ++i) {
          if (norm.over == NormOver::groups && i / per_group != c / per_group) continue;
          for (std::int64_t at = 0; at < in_.height * in_.width; ++at) {
            const bool here = at == h * in_.width + w;
            if (norm.over == NormOver::channels && !here) continue;
            const double v = x(i, at / in_.width, at % in_.width);
            squared ? squares += (v - mean / count) * (v - mean / count) : mean += v;
            if (!squared) ++count;
          }
        }
      }
      const auto channel = static_cast<std::size_t>(c);
      const double inverse = 1 / std::sqrt(squares / count + static_cast<double>(norm.epsilon));
      return weight[channel] * (x(c, h, w) - mean / count) * inverse + bias[channel];
    });
  }
  void compute(const ActivationLayer& kind) {
    std::transform(x_->begin(), x_->end(), y_.begin(), [&](double v) {
      switch (kind.activation) {
        case Activation::relu:
          return std::max(v, 0.0);
        case Activation::relu6:
          return std::clamp(v, 0.0, 6.0);
        case Activation::sigmoid:
          return 1 / (1 + std::exp(-v));
        case Activation::tanh:
          return std::tanh(v);
        case Activation::none:
          break;
      }
      return v;
    });
  }
  void compute(const GeluSpec& gelu) {
    std::transform(x_->begin(), x_->end(), y_.begin(), [&](double v) {
      const double cube = v + 0.044715 * v * v * v;
      return gelu.form == GeluForm::tanh ? v / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * cube))
                                         : v / 2 * (1 + std::erf(v / std::sqrt(2.0)));
    });
  }
  void compute(const SoftmaxSpec& /*kind*/) {
    const std::size_t plane = x_->size() / static_cast<std::size_t>(in_.channels);
    for (std::size_t p = 0; p < plane; ++p) {
      double sum = 0;
      for (std::size_t i = p; i < x_->size(); i += plane) sum += y_[i] = std::exp((*x_)[i]);
      for (std::size_t i = p; i < x_->size(); i += plane) y_[i] /= sum;
    }
  }
  void compute(const PointwiseSpec& pointwise) {
    const double alpha = pointwise.alpha;
    std::transform(x_->begin(), x_->end(), y_.begin(), [&](double v) {
      switch (pointwise.function) {
        case PointwiseFunction::silu:
          return v / (1 + std::exp(-v));
        case PointwiseFunction::hardswish:
          return v * std::clamp(v + 3, 0.0, 6.0) / 6;
        case PointwiseFunction::hardsigmoid:
          return std::clamp(v + 3, 0.0, 6.0) / 6;
        case PointwiseFunction::leaky_relu:
          return v > 0 ? v : alpha * v;
        case PointwiseFunction::elu:
          return v > 0 ? v : alpha * std::expm1(v);
        case PointwiseFunction::mish:
          break;
      }
      return v * std::tanh(std::log1p(std::exp(v)));
    });
  }
  void compute(const ProductLayer& /*kind*/) {
    const std::vector<double>& factors = values_[static_cast<std::size_t>(layer_->inputs[1])];
    const std::size_t shared = x_->size() / factors.size();
    for (std::size_t i = 0; i < y_.size(); ++i) y_[i] = (*x_)[i] * factors[i / shared];
  }
  void compute(const ConcatLayer& /*kind*/) {
    y_ = *x_;
    const std::vector<double>& second = values_[static_cast<std::size_t>(layer_->inputs[1])];
    y_.insert(y_.end(), second.begin(), second.end());
  }
  void compute(const ChannelSelectLayer& select) {
    each_output([&](std::int64_t c, std::int64_t h, std::int64_t w) {
      return x(select.first + c % select.groups * (select.count / select.groups) + c / select.groups, h, w);
    });
  }
  void compute_adaptive(const Shape& out) {
    each_output([&](std::int64_t c, std::int64_t row, std::int64_t column) {
      double sum = 0;
      std::int64_t count = 0;
      const std::int64_t end_row = ((row + 1) * in_.height + out.height - 1) / out.height;
      const std::int64_t end_column = ((column + 1) * in_.width + out.width - 1) / out.width;
      for (std::int64_t h = row * in_.height / out.height; h < end_row; ++h) {
        for (std::int64_t w = column * in_.width / out.width; w < end_column; ++w, ++count) sum += x(c, h, w);
      }
      return sum / static_cast<double>(count);
    });
  }
  void compute(const PoolLayer& pool) {
    if (pool.adaptive_height > 0) return compute_adaptive(layer_->output);
    each_output([&](std::int64_t c, std::int64_t row, std::int64_t column) {
      double sum = 0;
      double most = -INFINITY;
      std::int64_t count = 0;
      for (std::int64_t i = 0; i < pool.window.height; ++i) {
        for (std::int64_t j = 0; j < pool.window.width; ++j) {
          const std::int64_t h =
              row * pool.window.stride.vertical + i * pool.window.dilation.vertical - pool.window.padding.top;
          const std::int64_t w =
              column * pool.window.stride.horizontal + j * pool.window.dilation.horizontal - pool.window.padding.left;
          if (!inside(h, w)) continue;
          sum += x(c, h, w);
          most = std::max(most, x(c, h, w));
          ++count;
        }
      }
      if (pool.kind == PoolSpec::Kind::maximum) return most;
      return sum / static_cast<double>(pool.count_padding ? pool.window.elements() : count);
    });
  }
  void compute(const LrnLayer& lrn) {
    each_output([&](std::int64_t c, std::int64_t h, std::int64_t w) {
      double sum = 0;
      const std::int64_t first = std::max<std::int64_t>(0, c - lrn.size / 2);
      const std::int64_t last = std::min(in_.channels - 1, c + (lrn.size - 1) / 2);
      for (std::int64_t i = first; i <= last; ++i) sum += x(i, h, w) * x(i, h, w);
      return x(c, h, w) / std::pow(lrn.k + static_cast<double>(lrn.alpha) / static_cast<double>(lrn.size) * sum,
                                   static_cast<double>(lrn.beta));
    });
  }

  const Graph& graph_;
  std::span<const float> parameters_;
  std::span<const float> statistics_;
  std::vector<std::vector<double>> values_;
  int index_ = 0;
  const Layer* layer_ = nullptr;
  const std::vector<double>* x_ = nullptr;
  Shape in_;
  std::vector<double> y_;
};

}  // namespace ddp
