// Normalisations; any layout, the same on both sides.
//
//   std::unique_ptr<Op> op = make_batch_norm(spec, Layout::lanes16, Element::bf16);
#pragma once

#include <memory>

#include "backend/op.h"

namespace ddp {

// On floats and on bf16 activations, where it computes in fp32 registers; null where it does not.
std::unique_ptr<Op> make_batch_norm(const BatchNormSpec& spec, Layout layout, Element element);

}  // namespace ddp
