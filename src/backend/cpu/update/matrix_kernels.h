// Products of matrices, compiled once for each instruction set (isa/kernels.inc).
//
//   const MatrixProduct product{.rows = 64, .depth = 576, .columns = 64, .left = x, .panels = packed, .to = gram};
//   for (int panel = 0; panel * kernels.panel < 64; ++panel) kernels.multiply(product, panel);
#pragma once

#include <cstdint>

namespace ddp::lanes {

// to = scale left right + addend_scale addend; all matrices row by row, but for `right`.
struct MatrixProduct {
  std::int64_t rows = 0;
  std::int64_t depth = 0;  // columns of `left`, rows of `right`
  std::int64_t columns = 0;
  const float* left = nullptr;
  // `right` in panels of some of its columns, the last one filled with zeros: [panel][depth][column of the panel].
  const float* panels = nullptr;
  float scale = 1;
  const float* addend = nullptr;  // null: none
  float addend_scale = 0;
  float* to = nullptr;
};

struct MatrixKernels {
  int panel;  // columns of a panel
  // All rows of one panel's columns. Each element is one sum over the depth, from its beginning.
  void (*multiply)(const MatrixProduct& product, std::int64_t panel);
};

const MatrixKernels& matrix_kernels();

}  // namespace ddp::lanes
