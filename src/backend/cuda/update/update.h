// Arithmetic on flat buffers, as functions that enqueue kernels on a stream: sums of gradients, the optimizers' updates, and what
// kernels are compared by. See FlatMath.
//
//   add(stream, sum, addend, count);
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/cuda/device/element.h"
#include "backend/cuda/vendor/context.h"
#include "backend/update/flat_math.h"
#include "backend/update/flat_update.h"
#include "backend/update/matrix_update.h"
#include "backend/update/table_rows.h"

namespace ddp::cuda {

void add(cudaStream_t stream, float* sum, const float* addend, std::size_t count);
// These two do nothing if there is `skip` and *skip is not 0.
void copy(cudaStream_t stream, float* to, const float* from, std::size_t count, const double* skip);
void pull(cudaStream_t stream, float* slow, float* fast, std::size_t count, float rest, const double* skip);
void copy_row(cudaStream_t stream, std::span<const TableColumn> columns, TableCursor* cursor);
void find_nonfinite(cudaStream_t stream, std::span<const double> sums, double* broken);
// kSquareSums sums of squares, each over an equal part of the values, in a fixed order, and the check of FlatMath.
void square_sums(cudaStream_t stream, const float* values, std::size_t count, double* sums,
                 const NonfiniteCheck& check);
// Pseudo-random values between -0.5 and 0.5 that depend only on index and seed, to time and to check kernels.
void fill_random(cudaStream_t stream, Element element, void* data, std::size_t count, std::uint32_t seed);
// result[0] = the largest |a - b|, infinite if either is NaN, result[1] = the largest |a|.
void compare(cudaStream_t stream, Element element, const void* a, const void* b, std::size_t count, float* result);
// counts[0] = the number of elements with |a - b| > limit, counts[1] = of those where it is not finite.
void count_apart(cudaStream_t stream, Element element, const void* a, const void* b, std::size_t count, float limit,
                 unsigned* counts);

void update(cudaStream_t stream, const UpdateArguments& arguments);

// What surrounds Muon's products of muon.cpp. They do nothing where the update is skipped.

// Matrices whose products are computed at once. Each is `small` x `large`, with its smaller side first and zeros behind its
// rows and columns.
inline constexpr std::int64_t kMatricesAtOnce = 32;
struct MatrixBatch {
  std::int64_t small = 0;
  std::int64_t large = 0;
  std::int64_t count = 0;
  UpdateMatrix matrices[kMatricesAtOnce] = {};
};
// The momentum of all matrices, and their norms.
void muon_momentum(cudaStream_t stream, const UpdateArguments& arguments);
// x = the directions of a batch, of norm 1, one matrix behind the other.
void muon_directions(cudaStream_t stream, Element element, const UpdateArguments& arguments, const MatrixBatch& batch,
                     void* x);
// The new weights of a batch, where x are its steps.
void muon_weights(cudaStream_t stream, Element element, const UpdateArguments& arguments, const MatrixBatch& batch,
                  const void* x);

// The products are cuBLASLt's.
std::unique_ptr<MatrixUpdate> make_cuda_matrix_update(const CudaContext& context,
                                                      std::span<const UpdateMatrix> matrices);

}  // namespace ddp::cuda
