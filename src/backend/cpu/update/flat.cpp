// Loops over flat buffers: sums, checks.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/arithmetic.h"
#include "backend/cpu/update/update.h"
#include "backend/update/flat_math.h"

namespace ddp {
void cpu_add(float* __restrict sum, const float* __restrict addend, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += addend[i];
}

void cpu_pull(float* __restrict slow, float* __restrict fast, std::size_t count, float rest) {
#pragma omp parallel for simd schedule(static)
  for (std::size_t i = 0; i < count; ++i) {
    slow[i] += rest * (fast[i] - slow[i]);
    fast[i] = slow[i];
  }
}

void cpu_copy_row(const TableRow& row) {
  for (const TableColumn& column : row.columns) {
    const auto* const table = static_cast<const std::byte*>(column.table);
    std::copy_n(table + row_at(row.cursor) * column.stride, column.bytes, static_cast<std::byte*>(column.to));
  }
}

// Not with sanitizers, which cannot be initialised before the choice is made.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define DDP_WITH_AVX2 __attribute__((target_clones("avx2", "default")))
#else
#define DDP_WITH_AVX2
#endif

namespace {

// Sixteen sums side by side for vector registers, in fp32 over short blocks; a block whose squares overflow is summed
// again in double precision. No fused multiply-add, so that the bits are the same for each instruction set. A single stream is
// twice as fast where memory is prefetched, beyond its end, too.
DDP_WITH_AVX2 double square_sum(const float* values, std::size_t count) {
  constexpr std::size_t kLanes = 16;
  constexpr std::size_t kBlock = 512;
  constexpr std::size_t kAhead = 1024;
  double total = 0;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t end = std::min(count, begin + kBlock);
    std::array<float, kLanes> lanes{};
    std::size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      __builtin_prefetch(values + i + kAhead);
      for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane] * values[i + lane];
    }
    double sum = 0;
    for (const float lane : lanes) sum += lane;
    for (; i < end; ++i) sum += static_cast<double>(values[i]) * values[i];
    if (!std::isfinite(sum)) {
      sum = 0;
      for (i = begin; i < end; ++i) sum += static_cast<double>(values[i]) * values[i];
    }
    total += sum;
  }
  return total;
}

}  // namespace

void cpu_square_sums(const float* values, std::size_t count, double* sums) {
  const std::size_t part = (count + kSquareSums - 1) / kSquareSums;
#pragma omp parallel for schedule(static)
  for (std::size_t p = 0; p < kSquareSums; ++p) {
    const std::size_t begin = std::min(count, p * part);
    sums[p] = square_sum(values + begin, std::min(count, begin + part) - begin);
  }
}

}  // namespace ddp
