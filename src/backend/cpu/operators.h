// The operators of the CPU backend besides the lanes16 convolution; each file of this folder implements one kind.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/lanes_block_conv.h"
#include "backend/op.h"

namespace ddp {

// lanes_linear.cpp: x and y in lanes16, own kernels.
std::unique_ptr<Op> make_lanes_linear(const LinearSpec& spec);
// lanes_bf16_linear.cpp: the same on bf16 activations, with products of pairs of bf16 numbers.
inline constexpr const char* kLanesBf16Linear = "lanes.bf16-linear";
std::unique_ptr<Op> make_lanes_bf16_linear(const LinearSpec& spec);

// onednn_conv.cpp: x and y in nhwc. The format inside oneDNN is chosen for each direction:
//   nhwc      its kernels for channels-last
//   any       the blocked format it prefers, with reorders
//   winograd  Winograd's algorithm in its blocked format
// as "forward=onednn.nhwc data=onednn.any weights=onednn.any", on bf16 activations "forward=onednn-bf16.nhwc ...".
struct OneDnnConvFormats {
  std::string forward = "nhwc";
  std::string data = "nhwc";
  std::string weights = "nhwc";
};
std::string to_text(const OneDnnConvFormats& formats, Element element = Element::fp32);
bool is_onednn_bf16_text(const std::string& kernels);
OneDnnConvFormats onednn_formats_from_text(const std::string& kernels);
// Null if oneDNN has no such kernel for the shape (for example Winograd for 5x5), or for bf16 on this processor.
std::unique_ptr<Op> make_onednn_conv(const ConvSpec& spec, const OneDnnConvFormats& formats,
                                     Element element = Element::fp32);

// nhwc_depthwise.cpp: x and y in nhwc; each output channel reads the input channel with the same index; no epilogue.
inline constexpr const char* kNhwcDepthwise = "nhwc.depthwise";
bool nhwc_depthwise_supported(const ConvSpec& spec);
std::unique_ptr<Op> make_nhwc_depthwise(const ConvSpec& spec);

// onednn_conv_transpose.cpp: x and y in nhwc.
std::unique_ptr<Op> make_onednn_conv_transpose(const ConvTransposeSpec& spec);

// onednn_linear.cpp: x and y plain.
std::unique_ptr<Op> make_onednn_linear(const LinearSpec& spec);

// split_linear.cpp: x and y plain; for several parts.
std::unique_ptr<Op> make_split_linear(const LinearSpec& spec);

// Any layout, the same on both sides: elementwise.cpp, pooling.cpp, batch_norm.cpp, gelu.cpp, pointwise.cpp, lrn.cpp,
// dropout.cpp, pad.cpp. The first four also on bf16 activations, where they compute in fp32 registers; null where they do not.
std::unique_ptr<Op> make_activation(const ActivationSpec& spec, Layout layout, Element element);
std::unique_ptr<Op> make_add(const AddSpec& spec, Layout layout, Element element);
// See FlatMath.
void cpu_add_activations(Activations sum, ConstActivations addend, std::int64_t count);
std::unique_ptr<Op> make_pool(const PoolSpec& spec, Layout layout, Element element);
std::unique_ptr<Op> make_batch_norm(const BatchNormSpec& spec, Layout layout, Element element);
std::unique_ptr<Op> make_gelu(const GeluSpec& spec, Layout layout);
std::unique_ptr<Op> make_pointwise(const PointwiseSpec& spec, Layout layout);
std::unique_ptr<Op> make_product(const ProductSpec& spec, Layout layout);
// channels.cpp: the same, on any element.
std::unique_ptr<Op> make_concat(const ConcatSpec& spec, Layout layout);
std::unique_ptr<Op> make_channel_select(const ChannelSelectSpec& spec, Layout layout);
std::unique_ptr<Op> make_lrn(const LrnSpec& spec, Layout layout);
std::unique_ptr<Op> make_prelu(const PreluSpec& spec, Layout layout);
std::unique_ptr<Op> make_sample_norm(const SampleNormSpec& spec, Layout layout);
std::unique_ptr<Op> make_pad(const PadSpec& spec, Layout layout);
std::unique_ptr<Op> make_dropout(const DropoutSpec& spec, Layout layout);
// reorder.cpp: from any layout to any other.
std::unique_ptr<Op> make_reorder(const ReorderSpec& spec, Layout from, Layout to);
// In nhwc.
std::unique_ptr<Op> make_channels_last(const ChannelsLastSpec& spec);

// conv_norm_conv.cpp: the three as one operator in lanes16, with the parameters of all, in this order. Null if there is none.
std::unique_ptr<Op> make_conv_norm_conv(std::unique_ptr<BlockConv> first, const BatchNormSpec& norm,
                                        std::unique_ptr<BlockConv> second, Element element);
// norm_depthwise.cpp: the three as one operator in lanes16, with the parameters of all, in this order. Null if there is none.
std::unique_ptr<Op> make_norm_depthwise(const BatchNormSpec& before, const ConvSpec& conv, const BatchNormSpec& after,
                                        Element element);

// half_op.cpp: the operator `op` of fp32 activations on those of `element`, for types that it has no kernels for. Its
// inputs are widened, its results rounded, and so are the weights of products; sums, statistics and the gradients of
// parameters stay fp32 (or double). The result is that of instructions for the type up to the order of additions.
std::unique_ptr<Op> make_half_op(std::unique_ptr<Op> op, const OpSpec& spec, Layout x, Layout y, Element element);
// See FlatMath; one of the two is fp32, and the other is not.
void cpu_convert(Activations to, ConstActivations from, std::int64_t count);

// input_and_loss.cpp
void cpu_load_input(const InputSpec& spec, const InputArguments& arguments);
void cpu_softmax_cross_entropy(const LossSpec& spec, const LossArguments& arguments);

// flat.cpp
void cpu_add(float* sum, const float* addend, std::size_t count);
void cpu_pull(float* slow, float* fast, std::size_t count, float rest);
void cpu_copy_row(const TableRow& row);
// See FlatMath::square_sums().
void cpu_square_sums(const float* values, std::size_t count, double* sums);

// update.cpp
void cpu_update(const UpdateArguments& arguments);
// muon.cpp
std::unique_ptr<MatrixUpdate> make_cpu_matrix_update(std::span<const UpdateMatrix> matrices);

// pooling.cpp: 2x2 average pooling with stride 2 and its ReLU, for operators that fuse it; `outer` planes of
// height x width positions of `inner` values each. `y` is the convolution's output after ReLU.
void average_pool2(const float* y, float* pooled, std::int64_t outer, std::int64_t height, std::int64_t width,
                   std::int64_t inner);
void average_pool2_relu_backward(const float* dpooled, const float* y, float* dpre, std::int64_t outer,
                                 std::int64_t height, std::int64_t width, std::int64_t inner);

}  // namespace ddp
