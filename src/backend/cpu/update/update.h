// Arithmetic on flat buffers: sums of gradients, and the optimizers' updates. See FlatMath.
//
//   cpu_add(sum, addend, count);
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "backend/update/flat_update.h"
#include "backend/update/matrix_update.h"
#include "backend/update/table_rows.h"

namespace ddp {

void cpu_add(float* sum, const float* addend, std::size_t count);
void cpu_pull(float* slow, float* fast, std::size_t count, float rest);
void cpu_copy_row(const TableRow& row);
// See FlatMath::square_sums().
void cpu_square_sums(const float* values, std::size_t count, double* sums);

void cpu_update(const UpdateArguments& arguments);
std::unique_ptr<MatrixUpdate> make_cpu_matrix_update(std::span<const UpdateMatrix> matrices);

}  // namespace ddp
