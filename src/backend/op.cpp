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
        } else if constexpr (std::is_same_v<Spec, ReluSpec> || std::is_same_v<Spec, ReorderSpec>) {
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
        } else if constexpr (std::is_same_v<Spec, ReluSpec> || std::is_same_v<Spec, ReorderSpec>) {
          return s.shape;
        } else {
          return s.output();
        }
      },
      spec);
}

double forward_multiply_adds(const OpSpec& spec) {
  if (const auto* conv = std::get_if<ConvSpec>(&spec)) {
    return static_cast<double>(conv->batch * conv->convolved().elements() * conv->input.channels * conv->kernel_h *
                               conv->kernel_w);
  }
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) {
    return static_cast<double>(linear->batch * linear->inputs * linear->outputs);
  }
  return 0;
}

std::string kind_of(const OpSpec& spec) {
  constexpr std::array<const char*, std::variant_size_v<OpSpec>> names = {"conv", "linear", "relu", "pool", "reorder"};
  return names.at(spec.index());
}

}  // namespace ddp
