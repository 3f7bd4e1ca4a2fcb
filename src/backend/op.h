// The interface of operators, to which layers are lowered.
//
// A spec defines what is computed; an Op computes it on one device:
//
//   OpSpec spec = ConvSpec{.batch = 64, .input = {1, 28, 28}, .output_channels = 20, .window = square(3)};
//   KernelChoice choice = backend.chooser().choose(spec, Layout::lanes16, Layout::lanes16, ChoiceMode::timed);
//   std::unique_ptr<Op> op = backend.ops().make_op(spec, Layout::lanes16, Layout::lanes16, choice.kernels);
//   op->forward({.inputs = {x}, .y = y, .parameters = {weight, bias}, .saved = saved, .workspace = workspace, .active = 64});
//
// The caller passes all memory: an Op allocates nothing after construction. Parameters and their gradients are in
// PyTorch's layouts. Gradients are sums over the samples and overwrite the buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backend/activations.h"
#include "backend/argument_list.h"
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
#include "backend/ops/input.h"
#include "backend/ops/linear.h"
#include "backend/ops/loss.h"
#include "backend/ops/lrn.h"
#include "backend/ops/pad.h"
#include "backend/ops/pointwise.h"
#include "backend/ops/pool.h"
#include "backend/ops/prelu.h"
#include "backend/ops/product.h"
#include "backend/ops/reorder.h"
#include "backend/ops/sample_norm.h"
#include "backend/ops/softmax.h"
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
// and, unless the operator has one input, no parameters and no significant multiply-adds: inputs(), further_input(which) if
// others than the first have another shape, parameter_elements(which), statistic_elements(), multiply_adds(). Code that treats operators differently uses
// std::visit with one overload for each (base/overloaded.h), so that an operator added here does not compile until
// every backend has a case for it (docs/adding-an-op.md).
using OpSpec =
    std::variant<ConvSpec, ConvTransposeSpec, LinearSpec, ActivationSpec, GeluSpec, PointwiseSpec, PreluSpec, PoolSpec,
                 PadSpec, BatchNormSpec, SampleNormSpec, AddSpec, ProductSpec, ConcatSpec, ChannelSelectSpec, LrnSpec,
                 DropoutSpec, ReorderSpec, ChannelsLastSpec, SoftmaxSpec, InputSpec, LossSpec>;

std::int64_t batch_of(const OpSpec& spec);
Shape input_of(const OpSpec& spec, std::size_t which = 0);
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
// The number of input activations, which all have the same layout.
int inputs_of(const OpSpec& spec);
// The shapes of the inputs of an operator with one spec, or with several that are joined: the first of these reads the first
// input, the last the others.
std::vector<Shape> input_shapes(std::span<const OpSpec> specs);
// Elements of its parameters: of the weight (0), the bias (1) and the input bias (2); 0 for those that do not exist.
std::int64_t parameter_elements(const OpSpec& spec, std::size_t which);
// The same of each parameter of one spec or of several.
std::vector<std::int64_t> parameter_sizes(std::span<const OpSpec> specs);
// Floats of its running statistics.
std::int64_t statistic_elements(const OpSpec& spec);

struct ForwardArguments {
  ArgumentList<ConstActivations> inputs = {};
  Activations y = nullptr;
  // As parameter_elements() counts them; those of joined operators behind one another (OpJoiner::join()).
  ArgumentList<const float*> parameters = {};
  std::byte* saved = nullptr;      // OpTraits::saved_bytes, kept by the caller until backward
  std::byte* workspace = nullptr;  // OpTraits::workspace_bytes, free again after the call
  std::int64_t active = 0;         // the first `active` samples are used; the others contain arbitrary finite values
  float* statistics = nullptr;     // running statistics: updated in training, read in evaluation
  const std::uint64_t* keys = nullptr;      // of the samples, for dropout in training; on the device
  bool training = true;                     // backward may follow; false: evaluation
  const SumOverShards* sums = nullptr;      // for a synchronized batch normalisation; null: there is one shard
  const ShardExchange* exchange = nullptr;  // for a divided linear layer; null: the whole layer is computed here
  const std::byte* packed = nullptr;  // the weight as OpTraits::packed_form says; null: the operator packs it itself
  const InputArguments* images = nullptr;  // for an input
  LossArguments* loss = nullptr;           // for a loss, or for the operator before it, which may compute it too

  ConstActivations x() const { return inputs[0]; }
};

struct BackwardArguments {
  ArgumentList<ConstActivations> inputs = {};
  ConstActivations y = nullptr;
  ConstActivations dy = nullptr;  // zero for inactive samples
  // One for each input: not written if the spec has no input gradient; zero for inactive samples.
  ArgumentList<Activations> input_gradients = {};
  ArgumentList<const float*> parameters = {};
  ArgumentList<float*> parameter_gradients = {};
  std::byte* saved = nullptr;
  std::byte* workspace = nullptr;
  std::int64_t active = 0;
  // The gradient of the only input is added to what is there, if the operator's traits allow it.
  bool add_to_dx = false;
  const std::uint64_t* keys = nullptr;
  const SumOverShards* sums = nullptr;      // as in forward
  const ShardExchange* exchange = nullptr;  // as in forward
  const std::byte* packed = nullptr;        // as in forward
  // Receives the weight's gradient, if that is packed too; null: it is written to parameter_gradients.
  std::byte* packed_gradient = nullptr;

  ConstActivations x() const { return inputs[0]; }
  Activations dx() const { return input_gradients[0]; }
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

// An end of a network: nothing is in front of an input, and a loss computes its gradient in forward.
class EndOp : public Op {
 public:
  void backward(const BackwardArguments& /*arguments*/) final {}
};

}  // namespace ddp
