// An operator that computes what three do, one channel after the other, with the same bits.
//
//   std::unique_ptr<Op> op = make_norm_depthwise(before, conv, after, Element::fp32);     // null: they stay separate
#pragma once

#include <memory>

#include "backend/op.h"

namespace ddp {

// A depthwise convolution with the normalisations around it in lanes16, with the parameters of all, in this order. Null if there is
// none.
std::unique_ptr<Op> make_norm_depthwise(const BatchNormSpec& before, const ConvSpec& conv, const BatchNormSpec& after,
                                        Element element);

}  // namespace ddp
