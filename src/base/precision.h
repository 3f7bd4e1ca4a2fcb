// Number formats of activations and of the inputs of convolutions and matrix products; accumulation is in fp32.
//
//   const Precision precision = Precision::bf16;
#pragma once

namespace ddp {

enum class Precision { fp32, tf32, bf16, fp16 };

}  // namespace ddp
