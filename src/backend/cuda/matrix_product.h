// One matrix product by cuBLASLt, planned once for its shape.
//
// Note [Rows and columns]
// cuBLAS stores matrices by columns, everything here by rows. A matrix by rows is its transpose by columns, in the same
// memory, so a product by rows is computed as the product of the transposes in the other order:
//   C = A B   by rows   is   C^T = B^T A^T   by columns.
// RowProduct takes matrices by rows and swaps them inside. For a linear layer, with x [batch][inputs], W
// [outputs][inputs] and y [batch][outputs]:
//   y  = x W^T        dx = dy W        dW = dy^T x
// The bias of y = x W^T + b is one value for each column of y, which cuBLAS sees as one for each row, as it wants.
//
//   RowProduct product(cublas, {.rows = batch, .columns = outputs, .depth = inputs, .transpose_b = true, ...});
//   product.run(stream, x, w, y, bias, workspace);
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/element.h"
#include "backend/cuda/handles.h"

namespace ddp::cuda {

// C [rows][columns] = op(A) op(B), where op(A) is [rows][depth] and op(B) [depth][columns].
struct RowProductSpec {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  bool transpose_a = false;  // A lies in memory as [depth][rows]
  bool transpose_b = false;  // B lies in memory as [columns][depth]
  Precision precision = Precision::fp32;
  Element result = Element::fp32;  // A and B are elements of the precision
  bool bias = false;               // of the result's element, one a column
};

class RowProduct {
 public:
  // Throws Error(preflight) where cuBLASLt knows no way for this GPU.
  RowProduct(cublasLtHandle_t handle, const RowProductSpec& spec);

  std::size_t workspace_bytes() const { return workspace_bytes_; }
  // All pointers are multiples of 16 bytes.
  void run(cudaStream_t stream, const void* a, const void* b, void* c, const void* bias, void* workspace);

 private:
  using Product = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using Matrix = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

  static Product describe_product(const RowProductSpec& spec);
  static Matrix describe_matrix(Element element, std::int64_t rows, std::int64_t columns);
  void set_bias(const void* bias) const;

  cublasLtHandle_t handle_;
  bool has_bias_;
  Product product_;
  Matrix a_, b_, c_;
  cublasLtMatmulAlgo_t algorithm_{};
  std::size_t workspace_bytes_ = 0;
};

}  // namespace ddp::cuda
