// The interface of operators, to which layers are lowered.
//
// A spec defines what is computed; an Op computes it on one device:
//
//   OpSpec spec = ConvSpec{.batch = 64, .input = {1, 28, 28}, .output_channels = 20, .window = square(3)};
//   KernelChoice choice = backend.chooser().choose(spec, Layout::lanes16, Layout::lanes16, ChoiceMode::timed);
//   std::unique_ptr<Op> op = backend.ops().make_op(spec, Layout::lanes16, Layout::lanes16, choice.kernels);
//   op->forward({.x = x, .y = y, .parameters = {weight, bias}, .saved = saved, .workspace = workspace, .active = 64});
//
// The caller passes all memory: an Op allocates nothing after construction. Parameters and their gradients are in
// PyTorch's layouts. Gradients are sums over the samples and overwrite the buffer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "backend/activations.h"
#include "backend/loss.h"
#include "backend/op_traits.h"
#include "backend/ops/activation.h"
#include "backend/ops/add.h"
#include "backend/ops/batch_norm.h"
#include "backend/ops/channel_select.h"
#include "backend/ops/channels_last.h"
#include "backend/ops/concat.h"
#include "backend/ops/conv.h"
#include "backend/ops/conv_transpose.h"
#include "backend/ops/dropout.h"
#include "backend/ops/gelu.h"
#include "backend/ops/linear.h"
#include "backend/ops/lrn.h"
#include "backend/ops/pad.h"
#include "backend/ops/pointwise.h"
#include "backend/ops/pool.h"
#include "backend/ops/prelu.h"
#include "backend/ops/product.h"
#include "backend/ops/reorder.h"
#include "backend/ops/sample_norm.h"
#include "backend/over_shards.h"
#include "backend/tensor.h"

namespace ddp {

// All operators. A spec defines an operator completely; it has
//
//   kKind                      its name in texts
//   batch                      samples
//   shape, or output() and input (or input_shape())    per sample; with `shape`, both are the same
//   describe(Description&)     the other fields that kernels and their timings depend on
//
// and, unless the operator has one input, no parameters and no significant multiply-adds: inputs(), second_input() if its
// shape is another, parameter_elements(which), statistic_elements(), multiply_adds(). Code that treats operators differently uses
// std::visit with one overload for each (base/overloaded.h), so that an operator added here does not compile until
// every backend has a case for it (docs/adding-an-op.md).
using OpSpec = std::variant<ConvSpec, ConvTransposeSpec, LinearSpec, ActivationSpec, GeluSpec, PointwiseSpec, PreluSpec,
                            PoolSpec, PadSpec, BatchNormSpec, SampleNormSpec, AddSpec, ProductSpec, ConcatSpec,
                            ChannelSelectSpec, LrnSpec, DropoutSpec, ReorderSpec, ChannelsLastSpec>;

std::int64_t batch_of(const OpSpec& spec);
Shape input_of(const OpSpec& spec);
Shape output_of(const OpSpec& spec);
// Whether backward computes the gradient of the operator's input: not for the images, nor for what no trained parameter
// influences.
bool has_input_gradient(const OpSpec& spec);
// Multiply-adds of one forward pass; 0 for operators that are limited by memory bandwidth.
double forward_multiply_adds(const OpSpec& spec);
// The name of the operator's kind, e.g. "conv".
std::string kind_of(const OpSpec& spec);
// Kind, batch, shapes and all fields that kernels and their timings depend on: "lrn n64 96x27x27 96x27x27 size=5".
std::string describe(const OpSpec& spec);
// The number of input activations: 2 for sums, products and concatenations, otherwise 1; both have the same layout.
int inputs_of(const OpSpec& spec);
// The shape of the second one; input_of() unless the operator says otherwise.
Shape second_input_of(const OpSpec& spec);
// Elements of its parameters: of the weight (0), the bias (1) and the input bias (2); 0 for those that do not exist.
std::int64_t parameter_elements(const OpSpec& spec, std::size_t which);
// Floats of its running statistics.
std::int64_t statistic_elements(const OpSpec& spec);

// Weight, bias and input bias, if the operator has them; or those of operators that are one (OpJoiner::join()).
inline constexpr std::size_t kMaxParameters = 7;

struct ForwardArguments {
  ConstActivations x = nullptr;
  Activations y = nullptr;
  std::array<const float*, kMaxParameters> parameters{};
  std::byte* saved = nullptr;      // OpTraits::saved_bytes, kept by the caller until backward
  std::byte* workspace = nullptr;  // OpTraits::workspace_bytes, free again after the call
  std::int64_t active = 0;         // the first `active` samples are used; the others contain arbitrary finite values
  ConstActivations x2 = nullptr;   // the second input, if there is one
  float* statistics = nullptr;     // running statistics: updated in training, read in evaluation
  const std::uint64_t* keys = nullptr;      // of the samples, for dropout in training; on the device
  bool training = true;                     // backward may follow; false: evaluation
  const SumOverShards* sums = nullptr;      // for a synchronized batch normalisation; null: there is one shard
  const ShardExchange* exchange = nullptr;  // for a divided linear layer; null: the whole layer is computed here
  const std::byte* packed = nullptr;  // the weight as OpTraits::packed_form says; null: the operator packs it itself
  LossCall* loss = nullptr;           // of y, if this is the last operator
};

struct BackwardArguments {
  ConstActivations x = nullptr;
  ConstActivations y = nullptr;
  ConstActivations dy = nullptr;  // zero for inactive samples
  Activations dx = nullptr;       // not written if the spec has no input gradient; zero for inactive samples
  std::array<const float*, kMaxParameters> parameters{};
  std::array<float*, kMaxParameters> parameter_gradients{};
  std::byte* saved = nullptr;
  std::byte* workspace = nullptr;
  std::int64_t active = 0;
  ConstActivations x2 = nullptr;  // the second input, if there is one
  Activations dx2 = nullptr;      // its gradient
  bool add_to_dx = false;         // dx is added to what is there, if the operator's traits allow it; not if x2 exists
  const std::uint64_t* keys = nullptr;
  const SumOverShards* sums = nullptr;      // as in forward
  const ShardExchange* exchange = nullptr;  // as in forward
  const std::byte* packed = nullptr;        // as in forward
  // Receives the weight's gradient, if that is packed too; null: it is written to parameter_gradients.
  std::byte* packed_gradient = nullptr;
};

class Op {
 public:
  Op() = default;
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;
  virtual ~Op() = default;

  virtual OpTraits traits() const { return {}; }
  virtual void forward(const ForwardArguments& arguments) = 0;
  virtual void backward(const BackwardArguments& arguments) = 0;
};

}  // namespace ddp
