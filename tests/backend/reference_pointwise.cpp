#include <algorithm>
#include <cmath>

#include "backend/reference_kinds.h"

namespace ddp::reference {
namespace {

// Phi(x) of GELU and its derivative.
struct GeluPoint {
  double value;
  double slope;
};
GeluPoint gelu_point(GeluForm form, double x) {
  const double pi = std::acos(-1.0);
  if (form == GeluForm::exact) {
    return {(1 + std::erf(x / std::sqrt(2.0))) / 2, std::exp(-x * x / 2) / std::sqrt(2 * pi)};
  }
  const double scale = std::sqrt(2 / pi);
  const double t = std::tanh(scale * (x + 0.044715 * x * x * x));
  return {(1 + t) / 2, (1 - t * t) / 2 * scale * (1 + 3 * 0.044715 * x * x)};
}

}  // namespace

Values gelu(const GeluSpec& s, const Values& x) {
  Values y = x;
  for (double& value : y) value *= gelu_point(s.form, value).value;
  return y;
}

Values gelu_backward(const GeluSpec& s, const Values& x, const Values& dy) {
  Values dx = dy;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const GeluPoint point = gelu_point(s.form, x[i]);
    dx[i] *= point.value + x[i] * point.slope;
  }
  return dx;
}

namespace {

// f(x) and its derivative.
struct FunctionPoint {
  double value;
  double slope;
};
FunctionPoint function_point(const PointwiseSpec& s, double x) {
  const double sigmoid = 1 / (1 + std::exp(-x));
  const double alpha = s.alpha;
  switch (s.function) {
    case PointwiseFunction::silu:
      return {x * sigmoid, sigmoid + x * sigmoid * (1 - sigmoid)};
    case PointwiseFunction::hardswish:
      if (x <= -3) return {0, 0};
      return x >= 3 ? FunctionPoint{x, 1} : FunctionPoint{x * (x + 3) / 6, x / 3 + 0.5};
    case PointwiseFunction::hardsigmoid:
      return {std::clamp(x + 3, 0.0, 6.0) / 6, x > -3 && x < 3 ? 1.0 / 6 : 0};
    case PointwiseFunction::leaky_relu:
      return x > 0 ? FunctionPoint{x, 1} : FunctionPoint{alpha * x, alpha};
    case PointwiseFunction::elu:
      return x > 0 ? FunctionPoint{x, 1} : FunctionPoint{alpha * std::expm1(x), alpha * std::exp(x)};
    case PointwiseFunction::mish:
      break;
  }
  const double t = std::tanh(std::log1p(std::exp(x)));
  return {x * t, t + x * (1 - t * t) * sigmoid};
}

}  // namespace

Values apply(const PointwiseSpec& s, const Values& x) {
  Values y = x;
  for (double& value : y) value = function_point(s, value).value;
  return y;
}

Values apply_backward(const PointwiseSpec& s, const Values& x, const Values& dy) {
  Values dx = dy;
  for (std::size_t i = 0; i < x.size(); ++i) dx[i] *= function_point(s, x[i]).slope;
  return dx;
}

}  // namespace ddp::reference
