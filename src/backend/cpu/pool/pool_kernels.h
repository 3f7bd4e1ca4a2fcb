// Kernels of maximum pooling, compiled once for each instruction set (isa/kernels.inc).
#pragma once

#include <cstdint>

namespace ddp::lanes {

// The part of a window inside the input: `rows` x `columns` positions of `inner` contiguous values each, `row_step`
// values from one row to the next and `column_step` from one column to the next. Positions are counted row by row.
struct PoolWindow {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t row_step;
  std::int64_t column_step;
  std::int64_t inner;
};

// Value: floats or bf16 numbers, of which sums are fp32.
template <class Index, class Value>
struct MaximumKernels {
  // y[k] is the maximum of the values k, and places[k] its position, unless places is null. The first of equal ones
  // wins, and NaN is larger than any number.
  void (*forward)(const PoolWindow& window, const Value* x, Value* y, Index* places);
  // dx gets dy[k] added at the position places[k].
  void (*backward)(const PoolWindow& window, const Value* dy, const Index* places, float* dx);
};

struct PoolKernels {
  MaximumKernels<std::uint8_t, float> in_a_byte;  // windows of up to 256 positions
  MaximumKernels<std::int32_t, float> large;
  MaximumKernels<std::uint8_t, std::uint16_t> in_a_byte_bf16;
  MaximumKernels<std::int32_t, std::uint16_t> large_bf16;
};

const PoolKernels& pool_kernels();

}  // namespace ddp::lanes
