// Pooling; any layout, the same on both sides.
//
//   std::unique_ptr<Op> op = make_pool(spec, Layout::nhwc, Element::fp32);
#pragma once

#include <cstdint>
#include <memory>

#include "backend/op.h"

namespace ddp {

// On floats and on bf16 activations, where it computes in fp32 registers; null on others.
std::unique_ptr<Op> make_pool(const PoolSpec& spec, Layout layout, Element element);

// 2x2 average pooling with stride 2 and its ReLU, for operators that fuse it; `outer` planes of height x width positions of
// `inner` values each. `y` is the convolution's output after ReLU.
void average_pool2(const float* y, float* pooled, std::int64_t outer, std::int64_t height, std::int64_t width,
                   std::int64_t inner);
void average_pool2_relu_backward(const float* dpooled, const float* y, float* dpre, std::int64_t outer,
                                 std::int64_t height, std::int64_t width, std::int64_t inner);

}  // namespace ddp
