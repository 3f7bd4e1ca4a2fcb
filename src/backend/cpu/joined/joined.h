// Operators that compute what several do, one block of samples or one channel after the other, with the same bits.
//
//   std::unique_ptr<Op> op = make_norm_depthwise(before, conv, after, Element::fp32);     // null: they stay separate
#pragma once

#include <memory>

#include "backend/cpu/conv/conv.h"
#include "backend/op.h"

namespace ddp {

// A convolution, a normalisation and a convolution in lanes16, with the parameters of all, in this order. Null if there is none.
std::unique_ptr<Op> make_conv_norm_conv(std::unique_ptr<BlockConv> first, const BatchNormSpec& norm,
                                        std::unique_ptr<BlockConv> second, Element element);
// A depthwise convolution with the normalisations around it in lanes16, likewise.
std::unique_ptr<Op> make_norm_depthwise(const BatchNormSpec& before, const ConvSpec& conv, const BatchNormSpec& after,
                                        Element element);

}  // namespace ddp
