#include "backend/op.h"

#include <fmt/core.h>

namespace ddp {
namespace {

// Defaults for functions that a spec omits.
template <class Spec>
Shape input_shape(const Spec& s) {
  if constexpr (requires { s.shape; }) {
    return s.shape;
  } else if constexpr (requires { s.input_shape(); }) {
    return s.input_shape();
  } else {
    return s.input;
  }
}

template <class Spec>
Shape output_shape(const Spec& s) {
  if constexpr (requires { s.shape; }) {
    return s.shape;
  } else {
    return s.output();
  }
}

}  // namespace

std::int64_t batch_of(const OpSpec& spec) {
  return std::visit([](const auto& s) { return s.batch; }, spec);
}

Shape input_of(const OpSpec& spec, std::size_t which) {
  return std::visit(
      [which](const auto& s) -> Shape {
        if constexpr (requires { s.further_input(which); }) {
          if (which > 0) return s.further_input(which);
        }
        return input_shape(s);
      },
      spec);
}

std::vector<Shape> input_shapes(std::span<const OpSpec> specs) {
  std::vector<Shape> shapes = {input_of(specs.front())};
  const auto count = static_cast<std::size_t>(inputs_of(specs.back()));
  for (std::size_t which = 1; which < count; ++which) shapes.push_back(input_of(specs.back(), which));
  return shapes;
}

Shape output_of(const OpSpec& spec) {
  return std::visit([](const auto& s) { return output_shape(s); }, spec);
}

bool has_input_gradient(const OpSpec& spec) {
  return std::visit(
      [](const auto& s) {
        if constexpr (requires { s.input_gradient; }) return s.input_gradient;
        return true;
      },
      spec);
}

double forward_multiply_adds(const OpSpec& spec) {
  return std::visit(
      [](const auto& s) -> double {
        if constexpr (requires { s.multiply_adds(); }) return s.multiply_adds();
        return 0;
      },
      spec);
}

std::string kind_of(const OpSpec& spec) {
  return std::visit([](const auto& s) { return std::string(s.kKind); }, spec);
}

std::string describe(const OpSpec& spec) {
  const Shape in = input_of(spec);
  const Shape out = output_of(spec);
  Description fields;
  std::visit([&](const auto& s) { s.describe(fields); }, spec);
  return fmt::format("{} n{} {}x{}x{} {}x{}x{}{}", kind_of(spec), batch_of(spec), in.channels, in.height, in.width,
                     out.channels, out.height, out.width, fields.text());
}

int inputs_of(const OpSpec& spec) {
  return std::visit(
      [](const auto& s) -> int {
        if constexpr (requires { s.inputs(); }) return s.inputs();
        return 1;
      },
      spec);
}

std::int64_t parameter_elements(const OpSpec& spec, std::size_t which) {
  return std::visit(
      [which](const auto& s) -> std::int64_t {
        if constexpr (requires { s.parameter_elements(which); }) return s.parameter_elements(which);
        return 0;
      },
      spec);
}

std::vector<std::int64_t> parameter_sizes(std::span<const OpSpec> specs) {
  std::vector<std::int64_t> sizes;
  for (const OpSpec& spec : specs) {
    for (std::size_t which = 0; parameter_elements(spec, which) > 0; ++which) {
      sizes.push_back(parameter_elements(spec, which));
    }
  }
  return sizes;
}

std::int64_t statistic_elements(const OpSpec& spec) {
  return std::visit(
      [](const auto& s) -> std::int64_t {
        if constexpr (requires { s.statistic_elements(); }) return s.statistic_elements();
        return 0;
      },
      spec);
}

std::string_view to_string(Activation activation) {
  constexpr std::array<std::string_view, 5> names = {"none", "relu", "relu6", "sigmoid", "tanh"};
  return names.at(static_cast<std::size_t>(activation));
}

std::string_view to_string(PointwiseFunction function) {
  constexpr std::array<std::string_view, 6> names = {"silu", "hardswish", "hardsigmoid", "leaky_relu", "elu", "mish"};
  return names.at(static_cast<std::size_t>(function));
}

Description& Description::add(std::string_view name, std::int64_t value) {
  text_ += fmt::format(" {}={}", name, value);
  return *this;
}
Description& Description::add(std::string_view name, bool value) { return add(name, std::int64_t{value ? 1 : 0}); }
Description& Description::add(std::string_view name, float value) {
  text_ += fmt::format(" {}={}", name, value);
  return *this;
}
Description& Description::add(std::string_view name, std::string_view value) {
  text_ += fmt::format(" {}={}", name, value);
  return *this;
}
Description& Description::add(const Window2d& window) {
  const Padding2d& p = window.padding;
  text_ += fmt::format(" window={}x{} stride={}", window.height, window.width, window.stride.vertical);
  if (window.stride.horizontal != window.stride.vertical) text_ += fmt::format(",{}", window.stride.horizontal);
  text_ += fmt::format(" padding={},{},{},{}", p.top, p.left, p.bottom, p.right);
  if (window.dilation != 1) {
    text_ += fmt::format(" dilation={},{}", window.dilation.vertical, window.dilation.horizontal);
  }
  return *this;
}

}  // namespace ddp
