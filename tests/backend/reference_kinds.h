// The reference of each kind of operator.
#pragma once

#include <cstddef>

#include "backend/reference.h"

namespace ddp::reference {

inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// reference.cpp
Values activate(Activation activation, const Values& x);
// The gradient before an activation; x is the activation's input.
Values activate_backward(Activation activation, const Values& x, const Values& dy);
Values pool(const PoolSpec& s, const Values& x);
Values pool_backward(const PoolSpec& s, const Values& x, const Values& dy);

// reference_conv.cpp
Values convolve(const ConvSpec& s, const Inputs& in);
Gradients convolve_backward(const ConvSpec& s, const Inputs& in, const Values& dy);
Values convolve(const ConvTransposeSpec& s, const Inputs& in);
Gradients convolve_backward(const ConvTransposeSpec& s, const Inputs& in, const Values& dy);

// reference_pad.cpp
Values pad(const PadSpec& s, const Values& x);
Values pad_backward(const PadSpec& s, const Values& dy);

// reference_pointwise.cpp
Values gelu(const GeluSpec& s, const Values& x);
Values gelu_backward(const GeluSpec& s, const Values& x, const Values& dy);
Values apply(const PointwiseSpec& s, const Values& x);
Values apply_backward(const PointwiseSpec& s, const Values& x, const Values& dy);

// reference_norm.cpp
Outputs normalise(const BatchNormSpec& s, const Inputs& in);
Gradients normalise_backward(const BatchNormSpec& s, const Inputs& in, const Values& dy);
Values normalise(const SampleNormSpec& s, const Inputs& in);
Gradients normalise_backward(const SampleNormSpec& s, const Inputs& in, const Values& dy);
Values respond(const LrnSpec& s, const Values& x);
Values respond_backward(const LrnSpec& s, const Values& x, const Values& dy);

}  // namespace ddp::reference
