// Operators that compute each value by itself, and those that only move values; any layout, the same on both sides. Simple ones
// are declared in backend/ops.
//
//   std::unique_ptr<Op> op = make_activation(spec, Layout::lanes16, Element::fp32);
#pragma once

#include <memory>

#include "backend/op.h"

namespace ddp {

// On floats and on bf16 activations, where they compute in fp32 registers; null on others.
std::unique_ptr<Op> make_activation(const ActivationSpec& spec, Layout layout, Element element);
std::unique_ptr<Op> make_add(const AddSpec& spec, Layout layout, Element element);
// See FlatMath.
void cpu_add_activations(Activations sum, ConstActivations addend, std::int64_t count);
// From any layout to any other.
std::unique_ptr<Op> make_reorder(const ReorderSpec& spec, Layout from, Layout to);
// In nhwc.
std::unique_ptr<Op> make_channels_last(const ChannelsLastSpec& spec);

// The operator `op` of fp32 activations on those of `element`, for types that it has no kernels for. Its inputs are widened, its
// results rounded, and so are the weights of products; sums, statistics and the gradients of parameters stay fp32 (or double).
// The result is that of instructions for the type up to the order of additions.
std::unique_ptr<Op> make_half_op(std::unique_ptr<Op> op, const OpSpec& spec, Layout x, Layout y, Element element);
// See FlatMath; one of the two is fp32, and the other is not.
void cpu_convert(Activations to, ConstActivations from, std::int64_t count);

}  // namespace ddp
