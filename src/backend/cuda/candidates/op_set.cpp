#include "backend/cuda/candidates/op_set.h"

#include <algorithm>

#include "backend/cuda/code/parts.h"
#include "backend/cuda/conv/conv.h"
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/norm/norm.h"
#include "backend/cuda/pointwise/pointwise.h"
#include "backend/cuda/pool/pool.h"
#include "base/error.h"
#include "base/overloaded.h"

namespace ddp::cuda {
namespace {

bool mma_takes(const CudaContext& context, const OpSpec& spec) {
  if (context.element() == Element::fp16) return false;
  const auto* conv = std::get_if<ConvSpec>(&spec);
  const auto* linear = std::get_if<LinearSpec>(&spec);
  return conv != nullptr ? conv_mma_takes(*conv, parts_of(context.precision))
                         : linear != nullptr && linear_mma_takes(*linear);
}

bool stem_takes(const CudaContext& context, const OpSpec& spec) {
  const auto* conv = std::get_if<ConvSpec>(&spec);
  return context.element() == Element::bf16 && conv != nullptr && stem_conv_takes(*conv);
}

// Whether our kernels may read images in nhwc for a linear layer: in fp32 only where kernels are chosen by timing.
bool reads_images(const CudaContext& context, const LinearSpec& spec) {
  return mma_takes(context, spec) && linear_mma_is_small(spec) &&
         (context.element() == Element::bf16 || !context.deterministic);
}

std::unique_ptr<Op> make_conv(const CudaContext& context, const ConvSpec& spec, const std::string& kernels) {
  const bool mma = kernels == kMmaKernels;
  if (!mma && kernels != kStemKernels) {
    return make_cuda_conv(context, spec, conv_kernels_from_text(kernels, spec.input_gradient));
  }
  check(mma ? mma_takes(context, spec) : stem_takes(context, spec), ExitCode::preflight,
        "the plan names kernels '{}' for a convolution that they do not support", kernels);
  return mma ? make_mma_conv(context, spec) : make_stem_conv(context, spec);
}

std::unique_ptr<Op> make_linear(const CudaContext& context, const LinearSpec& spec, Layout layout,
                                const std::string& kernels) {
  const bool takes = mma_takes(context, spec);
  check(kernels == kMmaKernels ? takes : kernels.empty() && !mma_only(spec, layout), ExitCode::preflight,
        "the plan names kernels '{}' for a linear layer that they do not support", kernels);
  return kernels == kMmaKernels ? make_mma_linear(context, spec, layout) : make_cuda_linear(context, spec);
}

}  // namespace

bool has_op(const CudaContext& context, const OpSpec& spec, Layout x, Layout y) {
  if (x == Layout::lanes16 || y == Layout::lanes16) return false;
  return std::visit(
      Overloaded{[=](const OneOf<ConvSpec, ConvTransposeSpec, ChannelsLastSpec> auto& /*s*/) {
                   return x == Layout::nhwc && y == x;
                 },
                 [&](const LinearSpec& s) { return x == y && (!mma_only(s, x) || reads_images(context, s)); },
                 [](const ReorderSpec& /*s*/) { return true; },
                 [=](const OneOf<ActivationSpec, PoolSpec, BatchNormSpec, AddSpec> auto& /*s*/) { return x == y; },
                 [=](const SimpleSpec auto& /*s*/) { return x == y; }},
      spec);
}

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const OpSpec& spec, Layout x, Layout y,
                                 const std::string& kernels) {
  DDP_ASSERT(has_op(context, spec, x, y));
  const auto* conv = std::get_if<ConvSpec>(&spec);
  const Shape widest = conv == nullptr ? output_of(spec) : conv->convolved();
  const std::int64_t elements =
      std::max(std::max(input_of(spec).elements(), widest.elements()) * batch_of(spec), parameter_elements(spec, 0));
  check(elements <= kMostElements, ExitCode::out_of_memory,
        "a tensor of {} elements exceeds the kernels' limit of {}; use more logical shards", elements, kMostElements);
  return std::visit(Overloaded{[&](const ConvSpec& s) { return make_conv(context, s, kernels); },
                               [&](const ConvTransposeSpec& s) {
                                 return make_cuda_conv_transpose(context, s, conv_kernels_from_text(kernels, true));
                               },
                               [&](const LinearSpec& s) { return make_linear(context, s, x, kernels); },
                               [&](const ActivationSpec& s) { return make_cuda_activation(context, s); },
                               [&](const PoolSpec& s) { return make_cuda_pool(context, s, x); },
                               [&](const BatchNormSpec& s) { return make_cuda_batch_norm(context, s, x); },
                               [&](const AddSpec& s) { return make_cuda_add(context, s); },
                               [&](const SimpleSpec auto& s) { return make_cuda_op(context, s, x); },
                               [&](const ReorderSpec& s) { return make_cuda_reorder(context, s, x, y); },
                               [&](const ChannelsLastSpec& s) { return make_cuda_channels_last(context, s); }},
                    spec);
}

std::vector<std::string> own_kernels(const CudaContext& context, const OpSpec& spec) {
  std::vector<std::string> kernels;
  if (mma_takes(context, spec)) kernels.emplace_back(kMmaKernels);
  if (stem_takes(context, spec)) kernels.emplace_back(kStemKernels);
  return kernels;
}

const char* own_by_rule(const CudaContext& context, const OpSpec& spec) {
  const auto* conv = std::get_if<ConvSpec>(&spec);
  const bool mma = mma_takes(context, spec);
  if (context.element() != Element::bf16) return nullptr;
  if (conv == nullptr) return mma && linear_mma_is_small(std::get<LinearSpec>(spec)) ? kMmaKernels : nullptr;
  // cuDNN would pad such channels in memory.
  return mma && (conv->input.channels % 8 != 0 || conv->output_channels % 8 != 0) ? kMmaKernels : nullptr;
}

bool mma_only(const OpSpec& spec, Layout x) {
  const auto* linear = std::get_if<LinearSpec>(&spec);
  return linear != nullptr && x == Layout::nhwc && linear->positions() > 1;
}

const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return "fp32";
    case Precision::tf32:
      return "tf32";
    case Precision::bf16:
      return "bf16";
    case Precision::fp16:
      break;
  }
  return "fp16";
}

std::string cudnn_version_text() {
  const std::size_t version = cudnnGetVersion();
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

}  // namespace ddp::cuda
