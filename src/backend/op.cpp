#include "backend/op.h"

#include <type_traits>

namespace ddp {

std::int64_t batch_of(const OpSpec& spec) {
  return std::visit([](const auto& s) { return s.batch; }, spec);
}

Shape input_of(const OpSpec& spec) {
  return std::visit(
      [](const auto& s) -> Shape {
        using Spec = std::decay_t<decltype(s)>;
        if constexpr (std::is_same_v<Spec, LinearSpec>) {
          return {s.inputs, 1, 1};
        } else if constexpr (requires { s.shape; }) {
          return s.shape;
        } else {
          return s.input;
        }
      },
      spec);
}

Shape output_of(const OpSpec& spec) {
  return std::visit(
      [](const auto& s) -> Shape {
        using Spec = std::decay_t<decltype(s)>;
        if constexpr (std::is_same_v<Spec, LinearSpec>) {
          return {s.outputs, 1, 1};
        } else if constexpr (requires { s.shape; }) {
          return s.shape;
        } else {
          return s.output();
        }
      },
      spec);
}

double forward_multiply_adds(const OpSpec& spec) {
  if (const auto* conv = std::get_if<ConvSpec>(&spec)) {
    return static_cast<double>(conv->batch * conv->convolved().height * conv->convolved().width * conv->weights());
  }
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) {
    return static_cast<double>(linear->batch * linear->inputs * linear->outputs);
  }
  return 0;
}

std::string kind_of(const OpSpec& spec) {
  constexpr std::array<const char*, std::variant_size_v<OpSpec>> names = {
      "conv", "linear", "activation", "pool", "batchnorm", "add", "lrn", "dropout", "reorder", "tovector"};
  return names.at(spec.index());
}

int inputs_of(const OpSpec& spec) {
  if (const auto* norm = std::get_if<BatchNormSpec>(&spec)) return norm->add ? 2 : 1;
  return std::holds_alternative<AddSpec>(spec) ? 2 : 1;
}

std::int64_t parameter_elements(const OpSpec& spec, std::size_t which) {
  if (which == 2) {
    const auto* norm = std::get_if<BatchNormSpec>(&spec);
    return norm != nullptr && norm->input_bias ? norm->shape.channels : 0;
  }
  if (const auto* conv = std::get_if<ConvSpec>(&spec)) {
    return which == 0 ? conv->weights() : conv->bias ? conv->output_channels : 0;
  }
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) {
    return which == 0 ? linear->inputs * linear->outputs : linear->bias ? linear->outputs : 0;
  }
  if (const auto* norm = std::get_if<BatchNormSpec>(&spec)) return norm->shape.channels;
  return 0;
}

std::int64_t statistic_elements(const OpSpec& spec) {
  const auto* norm = std::get_if<BatchNormSpec>(&spec);
  return norm == nullptr ? 0 : 2 * norm->shape.channels;
}

std::string_view to_string(Activation activation) {
  constexpr std::array<std::string_view, 5> names = {"none", "relu", "relu6", "sigmoid", "tanh"};
  return names.at(static_cast<std::size_t>(activation));
}

}  // namespace ddp
