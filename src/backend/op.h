// The operator interface: what a layer is to a backend.
//
// A spec says what is computed, an Op computes it on one device:
//
//   OpSpec spec = ConvSpec{.batch = 64, .input = {1, 28, 28}, .output_channels = 20, .kernel_h = 3, .kernel_w = 3};
//   KernelChoice choice = backend.choose(spec, Layout::lanes16, Layout::lanes16, ChoiceMode::timed);
//   std::unique_ptr<Op> op = backend.make_op(spec, Layout::lanes16, Layout::lanes16, choice.kernels);
//   op->forward({.x = x, .y = y, .parameters = {weight, bias}, .saved = saved, .workspace = workspace, ...});
//
// All memory is handed in: an Op allocates nothing once it is built. Parameters and their gradients are in PyTorch's
// layouts. Gradients are sums over the samples, written over what was there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "backend/tensor.h"

namespace ddp {

// 2-D convolution (cross-correlation) with bias, optionally followed by ReLU and 2x2 average pooling of stride 2.
// Weight [output_channels][channels][kernel_h][kernel_w], bias [output_channels].
struct ConvSpec {
  std::int64_t batch = 0;
  Shape input;
  std::int64_t output_channels = 0;
  std::int64_t kernel_h = 1;
  std::int64_t kernel_w = 1;
  std::int64_t stride = 1;
  std::int64_t pad_top = 0;
  std::int64_t pad_left = 0;
  std::int64_t pad_bottom = 0;
  std::int64_t pad_right = 0;
  bool relu = false;
  bool average_pool = false;   // only with relu, and with even height and width of the convolution's output
  bool input_gradient = true;  // whether backward computes dx

  // The convolution's own output, before pooling.
  constexpr Shape convolved() const {
    return {output_channels, (input.height + pad_top + pad_bottom - kernel_h) / stride + 1,
            (input.width + pad_left + pad_right - kernel_w) / stride + 1};
  }
  constexpr Shape output() const {
    const Shape shape = convolved();
    return average_pool ? Shape{shape.channels, shape.height / 2, shape.width / 2} : shape;
  }
  bool operator==(const ConvSpec&) const = default;
};

// y = x W^T + b, optionally followed by ReLU. Weight [outputs][inputs], bias [outputs].
struct LinearSpec {
  std::int64_t batch = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  bool relu = false;
  bool input_gradient = true;
  bool operator==(const LinearSpec&) const = default;
};

struct ReluSpec {
  std::int64_t batch = 0;
  Shape shape;
  bool operator==(const ReluSpec&) const = default;
};

// Pooling with a square window, no padding; windows that do not fit are left out (PyTorch's floor mode).
struct PoolSpec {
  enum class Kind { average, maximum };
  std::int64_t batch = 0;
  Shape input;
  Kind kind = Kind::average;
  std::int64_t window = 2;
  std::int64_t stride = 2;

  constexpr Shape output() const {
    return {input.channels, (input.height - window) / stride + 1, (input.width - window) / stride + 1};
  }
  bool operator==(const PoolSpec&) const = default;
};

// The same values in another layout.
struct ReorderSpec {
  std::int64_t batch = 0;
  Shape shape;
  bool operator==(const ReorderSpec&) const = default;
};

using OpSpec = std::variant<ConvSpec, LinearSpec, ReluSpec, PoolSpec, ReorderSpec>;

std::int64_t batch_of(const OpSpec& spec);
Shape input_of(const OpSpec& spec);
Shape output_of(const OpSpec& spec);
// Multiply-adds of one forward pass; 0 for operators that only move memory.
double forward_multiply_adds(const OpSpec& spec);
// The name of the operator's kind, e.g. "conv".
std::string kind_of(const OpSpec& spec);

// Weight and bias, where an operator has them.
inline constexpr std::size_t kMaxParameters = 2;

struct ForwardArguments {
  const float* x = nullptr;
  float* y = nullptr;
  std::array<const float*, kMaxParameters> parameters{};
  std::byte* saved = nullptr;      // saved_bytes(), kept by the caller until backward
  std::byte* workspace = nullptr;  // workspace_bytes(), free again after the call
  std::int64_t active = 0;         // the first `active` samples matter; the others are zero
};

struct BackwardArguments {
  const float* x = nullptr;
  const float* y = nullptr;
  const float* dy = nullptr;
  float* dx = nullptr;  // not touched where the spec asks for no input gradient
  std::array<const float*, kMaxParameters> parameters{};
  std::array<float*, kMaxParameters> parameter_gradients{};
  std::byte* saved = nullptr;
  std::byte* workspace = nullptr;
  std::int64_t active = 0;
};

class Op {
 public:
  Op() = default;
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;
  virtual ~Op() = default;

  virtual std::size_t saved_bytes() const { return 0; }
  virtual std::size_t workspace_bytes() const { return 0; }
  // Whether backward reads x or y; what is not read need not be kept.
  virtual bool backward_reads_x() const { return false; }
  virtual bool backward_reads_y() const { return false; }
  // Whether y may lie where x lies, and dx where dy lies (an elementwise operator).
  virtual bool in_place() const { return false; }

  virtual void forward(const ForwardArguments& arguments) = 0;
  virtual void backward(const BackwardArguments& arguments) = 0;
};

}  // namespace ddp
