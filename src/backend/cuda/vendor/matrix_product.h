// A matrix product by cuBLASLt, planned once for its shape.
//
// Note [Rows and columns]
// cuBLAS uses column-major order, everything here row-major order. A row-major matrix is its transpose in column-major
// order, in the same memory, so a row-major product is computed as the product of the transposes in reverse order:
//   C = A B   row-major   is   C^T = B^T A^T   column-major.
// RowProduct takes row-major matrices and swaps them internally. For a linear layer, with x [batch][inputs], W
// [outputs][inputs] and y [batch][outputs]:
//   y  = x W^T        dx = dy W        dW = dy^T x
// The bias of y = x W^T + b is one value per column of y, which is one per row for cuBLAS, as it requires.
//
//   RowProduct product(cublas, {.rows = batch, .columns = outputs, .depth = inputs, .transpose_b = true, ...});
//   product.run(stream, x, w, y, bias, workspace);
//
// Several products of the same shape are computed at once if their matrices lie one behind the other (`batch`).
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/device/element.h"
#include "backend/cuda/device/handles.h"

namespace ddp::cuda {

// C [rows][columns] = op(A) op(B), where op(A) is [rows][depth] and op(B) [depth][columns].
struct RowProductSpec {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  std::int64_t batch = 1;    // products of this shape
  bool transpose_a = false;  // A is stored as [depth][rows]
  bool transpose_b = false;  // B is stored as [columns][depth]
  Precision precision = Precision::fp32;
  Element result = Element::fp32;  // A and B are elements of the precision
  bool bias = false;               // one per column, in the result's element type
};

// scale op(A) op(B) + addend_scale addend, where the addend has the type and shape of C.
struct RowProductSum {
  float scale = 1;
  const void* addend = nullptr;  // null: none
  float addend_scale = 0;
};

class RowProduct {
 public:
  // Throws Error(preflight) if cuBLASLt does not support it on this GPU.
  // Without a handle, as for a GPU that is only described, it has the largest workspace allowed, and cannot run.
  RowProduct(cublasLtHandle_t handle, const RowProductSpec& spec);

  std::size_t workspace_bytes() const { return workspace_bytes_; }
  // All pointers are multiples of 16 bytes.
  void run(cudaStream_t stream, const void* a, const void* b, void* c, const void* bias, void* workspace,
           const RowProductSum& sum = {});

 private:
  using Product = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using Matrix = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

  static Product describe_product(const RowProductSpec& spec);
  static Matrix describe_matrix(Element element, std::int64_t rows, std::int64_t columns, std::int64_t batch);
  void set_bias(const void* bias) const;

  cublasLtHandle_t handle_;
  bool has_bias_;
  Product product_;
  Matrix a_, b_, c_;
  cublasLtMatmulAlgo_t algorithm_{};
  std::size_t workspace_bytes_ = 0;
};

}  // namespace ddp::cuda
