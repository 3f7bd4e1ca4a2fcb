// Number formats of activations and of what convolutions and matrix products read; sums are fp32.
//
//   const Precision precision = Precision::bf16;
#pragma once

namespace ddp {

enum class Precision { fp32, tf32, bf16 };

}  // namespace ddp
