// Number formats: of activations and of the inputs of convolutions and matrix products, whose accumulation is in fp32, and
// of floats in a file.
//
//   const Precision precision = Precision::bf16;
#pragma once

namespace ddp {

enum class Precision { fp32, tf32, bf16, fp16 };
enum class StoredFloats { fp32, fp16, bf16 };

}  // namespace ddp
