// Matrix products of a warp on tensor cores: bf16 factors, fp32 sums. Tests replace this file by one that computes the
// same on the host.
//
// Note [Fragments]
// A warp holds matrices in its registers. Lane l has, with row g = l / 4 and pair t = l % 4, of
//   an 8x8 matrix of bf16     elements (g, 2t) and (g, 2t + 1), packed in 32 bits
//   A, 16 rows by 16          four such matrices: rows 0-7 and 8-15 of columns 0-7, then of columns 8-15
//   B, 16 rows by 8 columns   two of them, transposed: rows 0-7, rows 8-15
//   the sums, 16x8            (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
// These functions must be called by all threads of a warp.
//
//   const Matrices a = load_matrices(row);      // row: the address of row l % 8 of matrix l / 8 in shared memory
//   multiply_add(sums, a, b0, b1);              // sums += A B
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace ddp::cuda {

// Eight contiguous elements: a row of an 8x8 matrix.
struct alignas(16) Unit {
  __nv_bfloat16 values[8];
};

// Four 8x8 matrices.
struct Matrices {
  std::uint32_t values[4];
};

// Reconverges the threads of a warp after divergent branches, as the functions below require.
__device__ inline void converge() { __syncwarp(); }

// Lane l passes the address of row l % 8 of matrix l / 8.
__device__ inline Matrices load_matrices(const Unit* row) {
  Matrices m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m.values[0]), "=r"(m.values[1]), "=r"(m.values[2]), "=r"(m.values[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
  return m;
}

// The same, with each matrix transposed.
__device__ inline Matrices load_transposed(const Unit* row) {
  Matrices m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m.values[0]), "=r"(m.values[1]), "=r"(m.values[2]), "=r"(m.values[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
  return m;
}

// Lower halves of two registers with two elements each, that of `first` in the lower half of the result.
__device__ inline std::uint32_t lower_halves(std::uint32_t first, std::uint32_t second) {
  return __byte_perm(first, second, 0x5410);
}
__device__ inline std::uint32_t upper_halves(std::uint32_t first, std::uint32_t second) {
  return __byte_perm(first, second, 0x7632);
}

__device__ inline void multiply_add(float (&sums)[4], const Matrices& a, std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a.values[0]), "r"(a.values[1]), "r"(a.values[2]), "r"(a.values[3]), "r"(b0), "r"(b1));
}

}  // namespace ddp::cuda
