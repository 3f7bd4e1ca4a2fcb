// Which operators a GPU has, in which layouts, and with which kernels where none are timed: the same for a GPU that is
// here and for one that is only described.
//
//   if (has_op(spec, x, y)) op = make_cuda_op(context, spec, x, y, "forward=cudnn.28 ...");
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/operators.h"
#include "backend/op.h"

namespace ddp::cuda {

// The names of our own kernels in a plan: conv_mma.h and linear_mma.h, stem_conv.h.
inline constexpr const char* kMmaKernels = "mma";
inline constexpr const char* kStemKernels = "stem";

// The seconds of kernels that no plan is to take; finite, since they are added up.
inline constexpr double kNever = 1e9;

bool has_op(const CudaContext& context, const OpSpec& spec, Layout x, Layout y);
// Throws Error(preflight) for kernels that do not exist on this GPU, Error(out_of_memory) for tensors that are too
// large for any.
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const OpSpec& spec, Layout x, Layout y,
                                 const std::string& kernels);

// One operator of several; null: there is none (OpJoiner::join()).
std::unique_ptr<Op> make_joined_op(const CudaContext& context, std::span<const OpSpec> specs, Layout layout);
// Whether it is expected to be faster than these are separately; otherwise only timing decides.
bool expects_gain_of_join(std::span<const OpSpec> specs);

// The names of those that support a convolution or a linear layer.
std::vector<std::string> own_kernels(const CudaContext& context, const OpSpec& spec);
// The one of these for `spec` where none are timed; null: those of the libraries.
const char* own_by_rule(const CudaContext& context, const OpSpec& spec);
// Whether there are no others: for a linear layer that reads images in nhwc.
bool mma_only(const OpSpec& spec, Layout x);

const char* name_of(Precision precision);
// "9.19.0", of the library that is loaded.
std::string cudnn_version_text();

}  // namespace ddp::cuda
