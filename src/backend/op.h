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
#include <string_view>
#include <variant>

#include "backend/tensor.h"

namespace ddp {

// What follows an operator element by element; sigmoid and tanh only as operators of their own.
enum class Activation { none, relu, relu6, sigmoid, tanh };
std::string_view to_string(Activation activation);

// 2-D convolution (cross-correlation), optionally with bias, and followed by ReLU and 2x2 average pooling of stride 2.
// Weight [output_channels][channels / groups][kernel_h][kernel_w], bias [output_channels].
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
  std::int64_t groups = 1;  // output channel o reads the channels of group o / (output_channels / groups)
  bool bias = true;
  bool relu = false;
  bool average_pool = false;   // only with relu, and with even height and width of the convolution's output
  bool input_gradient = true;  // whether backward computes dx

  constexpr std::int64_t weights() const { return output_channels * (input.channels / groups) * kernel_h * kernel_w; }

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

// y = x W^T, optionally + b, optionally followed by ReLU. Weight [outputs][inputs], bias [outputs].
struct LinearSpec {
  std::int64_t batch = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  bool bias = true;
  bool relu = false;
  bool input_gradient = true;
  bool operator==(const LinearSpec&) const = default;
};

struct ActivationSpec {
  std::int64_t batch = 0;
  Shape shape;
  Activation activation = Activation::relu;
  bool operator==(const ActivationSpec&) const = default;
};

// Pooling over windows; those that do not fit into the padded input are left out (PyTorch's floor mode). Padding never
// wins a maximum.
struct PoolSpec {
  enum class Kind { average, maximum };
  std::int64_t batch = 0;
  Shape input;
  Kind kind = Kind::average;
  std::int64_t window_h = 2;
  std::int64_t window_w = 2;
  std::int64_t stride = 2;
  std::int64_t pad_top = 0;
  std::int64_t pad_left = 0;
  std::int64_t pad_bottom = 0;
  std::int64_t pad_right = 0;
  bool count_padding = true;  // an average divides by the window's size; else by the elements inside the input

  constexpr Shape output() const {
    return {input.channels, (input.height + pad_top + pad_bottom - window_h) / stride + 1,
            (input.width + pad_left + pad_right - window_w) / stride + 1};
  }
  bool operator==(const PoolSpec&) const = default;
};

// Batch normalisation (Ioffe and Szegedy, 2015), optionally followed by the sum with a second input, and then by ReLU
// or ReLU6: y = activation(weight * (x - mean) / sqrt(variance + epsilon) + bias + x2). In training, mean and variance
// are those of the active samples, and the running ones move towards them: running += momentum * (batch's - running),
// the variance divided by n - 1 there (n for n = 1); without active samples they stay. In evaluation they are the
// running ones. Weight and bias [channels]; running statistics [2][channels]: means, then variances.
// With `input_bias` there is a third parameter b [channels], and x + b is normalised, without being computed: in
// training b cancels out and only the running means contain it, so its gradient is zero.
struct BatchNormSpec {
  std::int64_t batch = 0;
  Shape shape;
  float epsilon = 1e-5F;
  float momentum = 0.1F;
  Activation activation = Activation::none;
  bool add = false;         // whether there is a second input
  bool input_bias = false;  // where the backend takes_bias_into_norm()
  bool operator==(const BatchNormSpec&) const = default;
};

// y = activation(x + x2); activation none, ReLU or ReLU6.
struct AddSpec {
  std::int64_t batch = 0;
  Shape shape;
  Activation activation = Activation::none;
  bool operator==(const AddSpec&) const = default;
};

// Local response normalisation over `size` neighbouring channels (Krizhevsky et al., 2012), as
// torch.nn.LocalResponseNorm has it: y = x / (k + alpha / size * sum of x^2 over channels c - size/2 .. c +
// (size-1)/2)^beta.
struct LrnSpec {
  std::int64_t batch = 0;
  Shape shape;
  std::int64_t size = 5;
  float alpha = 1e-4F;
  float beta = 0.75F;
  float k = 1;
  bool operator==(const LrnSpec&) const = default;
};

// Dropout (Srivastava et al., 2014): in training each element becomes 0 with probability `rate`, else it is divided by
// 1 - rate; in evaluation nothing happens. Which elements: dropout_keeps() of backend/arithmetic.h, a function of the
// sample's key, the operator's `stream` and the element's place in PyTorch's order, alike in every layout and on every
// device.
struct DropoutSpec {
  std::int64_t batch = 0;
  Shape shape;
  float rate = 0.5F;
  std::uint32_t stream = 0;  // another for each dropout of a network
  bool operator==(const DropoutSpec&) const = default;
};

// The same values in another layout.
struct ReorderSpec {
  std::int64_t batch = 0;
  Shape shape;
  bool operator==(const ReorderSpec&) const = default;
};

// The elements of each sample in the order [H][W][C], as a vector: PyTorch's permute(0, 2, 3, 1).flatten(1). In nhwc
// they lie so already, and it is a copy.
struct ChannelsLastSpec {
  std::int64_t batch = 0;
  Shape input;

  constexpr Shape output() const { return {input.elements(), 1, 1}; }
  bool operator==(const ChannelsLastSpec&) const = default;
};

using OpSpec = std::variant<ConvSpec, LinearSpec, ActivationSpec, PoolSpec, BatchNormSpec, AddSpec, LrnSpec,
                            DropoutSpec, ReorderSpec, ChannelsLastSpec>;

std::int64_t batch_of(const OpSpec& spec);
Shape input_of(const OpSpec& spec);
Shape output_of(const OpSpec& spec);
// Multiply-adds of one forward pass; 0 for operators that only move memory.
double forward_multiply_adds(const OpSpec& spec);
// The name of the operator's kind, e.g. "conv".
std::string kind_of(const OpSpec& spec);
// Activations that it reads: 2 for a sum, else 1; both inputs of a sum have the same shape and layout.
int inputs_of(const OpSpec& spec);
// Elements of its parameters: of the weight (0), the bias (1) and the input bias (2); 0 where there is none.
std::int64_t parameter_elements(const OpSpec& spec, std::size_t which);
// Floats of its running statistics.
std::int64_t statistic_elements(const OpSpec& spec);

// Weight, bias and input bias, where an operator has them.
inline constexpr std::size_t kMaxParameters = 3;

struct ForwardArguments {
  const float* x = nullptr;
  float* y = nullptr;
  std::array<const float*, kMaxParameters> parameters{};
  std::byte* saved = nullptr;           // saved_bytes(), kept by the caller until backward
  std::byte* workspace = nullptr;       // workspace_bytes(), free again after the call
  std::int64_t active = 0;              // the first `active` samples matter; the others hold any finite values
  const float* x2 = nullptr;            // the second input of a sum
  float* statistics = nullptr;          // running statistics: changed in training, read in evaluation
  const std::uint64_t* keys = nullptr;  // of the samples, for dropout in training; on the device
  bool training = true;                 // backward may follow; else it is an evaluation
};

struct BackwardArguments {
  const float* x = nullptr;
  const float* y = nullptr;
  const float* dy = nullptr;  // zero for samples that do not matter
  float* dx = nullptr;  // not touched where the spec asks for no input gradient; zero for samples that do not matter
  std::array<const float*, kMaxParameters> parameters{};
  std::array<float*, kMaxParameters> parameter_gradients{};
  std::byte* saved = nullptr;
  std::byte* workspace = nullptr;
  std::int64_t active = 0;
  float* dx2 = nullptr;  // the gradient of the second input of a sum
  const std::uint64_t* keys = nullptr;
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
  // Whether y may lie where x lies, and dx where dy lies: an elementwise operator of one layout.
  virtual bool in_place() const { return false; }

  virtual void forward(const ForwardArguments& arguments) = 0;
  virtual void backward(const BackwardArguments& arguments) = 0;
};

}  // namespace ddp
