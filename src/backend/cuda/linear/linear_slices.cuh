// Shared by the kernels of linear_mma.h: what a warp holds of both factors of a product in shared memory, and its products.
// Slices<T> has the same functions for factors in bf16 and in fp32.
//
// Note [Slices]
// A slice is what a warp needs of a factor for a step of the depth, in vectors of 16 bytes: 32 rows of the factor where the
// depth is its columns, 16 rows where it is its rows. Vectors are exchanged within lines so that lanes which read at the same
// time use different banks. fp32 is divided into parts (Note [Parts] of parts.h) in registers.
//
//   Slices<T>::template copy<kStepDistance, kVectorsToNextStep>(factor, depth_is_rows, first, k, room.slices[0][i]);
//   wait_for_copies();
//   converge();
//   Slices<T>::template multiply<kMasked>(room.slices[step], parts, has_mask, rows_of_a, rows_of_b, sums);
#pragma once

#include <cstdint>

#include "backend/arithmetic.h"
#include "backend/cuda/code/async_copy.cuh"
#include "backend/cuda/code/conv_tile.cuh"

namespace ddp::cuda {

inline constexpr unsigned kTileRows = 32;
inline constexpr unsigned kTileColumns = 32;
inline constexpr unsigned kStepDepth = 16;  // of a product of a warp

// A matrix in memory, row by row.
template <class T>
struct Factor {
  const T* values;
  std::uint32_t rows, columns;  // beyond them it is zero
  std::uint32_t width;          // of its aligned vectors
  bool ones;                    // it has one more column, of ones
};

template <class T>
Factor<T> factor_of(const void* values, std::int64_t rows, std::int64_t columns) {
  std::uint32_t width = kVector<T>;
  while (columns % width != 0) width /= 2;
  return {as<T>(values), static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(columns), width, false};
}

// The adjacent values from element `i` of a factor on that are aligned, asynchronously, or zeros. Not single ones of bf16.
template <class T>
__device__ inline void copy_aligned(const Factor<T>& f, bool exists, std::uint32_t i, T* target) {
  const T* source = f.values + (exists ? i : 0);
  const std::uint32_t bytes = f.width * sizeof(T);
  if (bytes == 16) {
    copy_async_if<16>(exists, target, source);
  } else if (bytes == 8) {
    copy_async_if<8>(exists, target, source);
  } else {
    copy_async_if<4>(exists, target, source);
  }
}

// A product has two factors, whose depths are their columns or their rows; kMasked: the first one may be a gradient behind
// ReLU, and then there is what that returned, of the same form.
template <bool kMasked>
inline constexpr unsigned kFactorsOf = kMasked ? 3 : 2;

// Sums of a warp: tiles of 16 x 8 values, as in Note [Fragments].
using WarpSums = float[kTileRows / 16][kTileColumns / 8][4];

template <class T>
struct Slices;

template <>
struct Slices<__nv_bfloat16> {
  using Vector = Unit;
  static constexpr unsigned kVectors = kStepDepth * kTileRows / kChannelsOfUnit;
  static constexpr unsigned kAtOnce = 2;  // steps that a warp loads
  static constexpr unsigned kHalf = kVectors / 2;

  // Where a slice has a unit of one of its lines.
  static __device__ unsigned place_of(bool depth_is_rows, unsigned line, unsigned unit) {
    return depth_is_rows ? 4 * line + (unit ^ line / 2 % 4) : 2 * line + (unit ^ line / 4 % 2);
  }

  // How the lanes of a warp copy slices of a factor, two units each, of which the second is kHalf units behind the first.
  struct Copier {
    bool depth_is_rows;
    unsigned line, unit;

    __device__ explicit Copier(bool rows)
        : depth_is_rows(rows),
          line(rows ? threadIdx.x % 32 / 4 : threadIdx.x % 32 / 2),
          unit(rows ? threadIdx.x % 4 : threadIdx.x % 2) {}
    __device__ unsigned lines_of_half() const { return depth_is_rows ? 8 : 16; }
    __device__ unsigned place() const { return place_of(depth_is_rows, line, unit); }
  };

  // The calling warp's slices of a factor for kAtOnce steps, asynchronously.
  template <unsigned kStepDistance, unsigned kVectorsToNextStep>
  static __device__ void copy(const Factor<__nv_bfloat16>& f, bool depth_is_rows, std::uint32_t first, std::uint32_t k,
                              Unit* slice) {
    const Copier lane(depth_is_rows);
    std::uint32_t row = (depth_is_rows ? k : first) + lane.line;
    std::uint32_t column = (depth_is_rows ? first : k) + lane.unit * kChannelsOfUnit;
    std::uint32_t i = row * f.columns + column;  // a layer has fewer than 2^31 values
    const std::uint32_t half = lane.lines_of_half() * f.columns;
    Unit* target = slice + lane.place();
#pragma unroll 1
    for (unsigned step = 0; step < kAtOnce; ++step) {
      const bool first_exists = row < f.rows;
      const bool second_exists = row + lane.lines_of_half() < f.rows;
      if (f.width == 1) {
        copy_values(f, first_exists, i, column, target);
        copy_values(f, second_exists, i + half, column, target + kHalf);
      } else {
#pragma unroll 1
        for (unsigned j = 0; j < kChannelsOfUnit; j += f.width) {
          const bool exists = column + j < f.columns;
          copy_aligned(f, exists && first_exists, i + j, target->values + j);
          copy_aligned(f, exists && second_exists, i + half + j, target[kHalf].values + j);
        }
      }
      (depth_is_rows ? row : column) += kStepDistance;
      i += depth_is_rows ? kStepDistance * f.columns : kStepDistance;
      target += kVectorsToNextStep;
    }
  }

  // Puts ones into a column of the slices of a factor whose depth is its rows, each lane where it has copied zeros.
  template <unsigned kStepDistance, unsigned kVectorsToNextStep>
  static __device__ void put_ones(const Factor<__nv_bfloat16>& f, std::uint32_t column, std::uint32_t k, Unit* slice) {
    const Copier lane(true);
    if (lane.unit != column / kChannelsOfUnit) return;
    std::uint32_t row = k + lane.line;
    Unit* target = slice + lane.place();
#pragma unroll 1
    for (unsigned step = 0; step < kAtOnce; ++step) {
      for (unsigned half = 0; half < 2; ++half) {
        if (row + half * lane.lines_of_half() < f.rows)
          put(target[half * kHalf].values, column % kChannelsOfUnit, 1.0F);
      }
      row += kStepDistance;
      target += kVectorsToNextStep;
    }
  }

  // The product of a step.
  template <bool kMasked>
  static __device__ void multiply(const Unit (&slices)[kFactorsOf<kMasked>][kVectors], std::uint32_t /*parts*/,
                                  bool has_mask, bool depth_is_rows_of_a, bool depth_is_rows_of_b, WarpSums& sums) {
    const unsigned lane = threadIdx.x % 32;
    const auto place = [lane](bool depth_is_rows, bool swapped) {
      return swapped ? place_of(depth_is_rows, lane % 8 + lane / 16 * 8, lane / 8 % 2)
                     : place_of(depth_is_rows, lane % 16, lane / 16);
    };
    const unsigned a_place = place(depth_is_rows_of_a, depth_is_rows_of_a);
    const unsigned b_place = place(depth_is_rows_of_b, !depth_is_rows_of_b);
    const auto load = [](const Unit* slice, bool depth_is_rows, unsigned place, unsigned i) {
      return depth_is_rows ? load_transposed(slice + (place ^ 2 * i)) : load_matrices(slice + place + 32 * i);
    };
    Matrices rows[kTileRows / 16];
#pragma unroll
    for (unsigned m = 0; m < kTileRows / 16; ++m) {
      rows[m] = load(slices[0], depth_is_rows_of_a, a_place, m);
    }
    if (kMasked && has_mask) {
#pragma unroll
      for (unsigned m = 0; m < kTileRows / 16; ++m) {
        const Matrices y = load(slices[1], depth_is_rows_of_a, a_place, m);
        for (unsigned j = 0; j < 4; ++j) rows[m].values[j] = relu_gradients(y.values[j], rows[m].values[j]);
      }
    }
#pragma unroll
    for (unsigned n = 0; n < kTileColumns / 16; ++n) {
      const Matrices columns = load(slices[kFactorsOf<kMasked> - 1], depth_is_rows_of_b, b_place, n);
#pragma unroll
      for (unsigned m = 0; m < kTileRows / 16; ++m) {
        multiply_add(sums[m][2 * n], rows[m], columns.values[0], columns.values[1]);
        multiply_add(sums[m][2 * n + 1], rows[m], columns.values[2], columns.values[3]);
      }
    }
  }

 private:
  // Values of a unit one by one, with several loads in flight, or zeros.
  static __device__ void copy_values(const Factor<__nv_bfloat16>& f, bool exists, std::uint32_t i, std::uint32_t column,
                                     Unit* target) {
    Unit unit;
#pragma unroll
    for (unsigned j = 0; j < kChannelsOfUnit; ++j) {
      unit.values[j] = __float2bfloat16_rn(0.0F);
      if (exists && column + j < f.columns) unit.values[j] = f.values[i + j];
    }
    *target = unit;
  }
};

template <>
struct Slices<float> {
  struct alignas(16) Vector {
    float values[4];
  };
  static constexpr unsigned kVectors = kStepDepth * kTileRows / 4;
  static constexpr unsigned kAtOnce = 1;
  static constexpr unsigned kMostParts = 3;

  // Where a slice has a vector of one of its lines.
  static __device__ unsigned place_of(bool depth_is_rows, unsigned line, unsigned vector) {
    return depth_is_rows ? 8 * line + (vector ^ line / 2 % 4 * 2) : 4 * line + (vector ^ line / 2 % 2 * 2);
  }

  // The calling warp's slice of a factor, asynchronously.
  template <unsigned kStepDistance, unsigned kVectorsToNextStep>
  static __device__ void copy(const Factor<float>& f, bool depth_is_rows, std::uint32_t first, std::uint32_t k,
                              Vector* slice) {
#pragma unroll 1
    for (unsigned v = threadIdx.x % 32; v < kVectors; v += 32) {
      const Line at(depth_is_rows, v);
      const std::uint32_t row = (depth_is_rows ? k : first) + at.line;
      const std::uint32_t column = (depth_is_rows ? first : k) + at.vector * 4;
      float* target = slice[place_of(depth_is_rows, at.line, at.vector)].values;
#pragma unroll 1
      for (unsigned j = 0; j < 4; j += f.width) {
        const bool exists = row < f.rows && column + j < f.columns;
        copy_aligned(f, exists, row * f.columns + column + j, target + j);
      }
    }
  }

  // Puts ones into a column of the slice of a factor whose depth is its rows, each lane where it has copied zeros.
  template <unsigned kStepDistance, unsigned kVectorsToNextStep>
  static __device__ void put_ones(const Factor<float>& f, std::uint32_t column, std::uint32_t k, Vector* slice) {
#pragma unroll 1
    for (unsigned v = threadIdx.x % 32; v < kVectors; v += 32) {
      const Line at(true, v);
      if (at.vector != column / 4 || k + at.line >= f.rows) continue;
      slice[place_of(true, at.line, at.vector)].values[column % 4] = 1.0F;
    }
  }

  // The product of a step.
  template <bool kMasked>
  static __device__ void multiply(const Vector (&slices)[kFactorsOf<kMasked>][kVectors], std::uint32_t parts,
                                  bool has_mask, bool depth_is_rows_of_a, bool depth_is_rows_of_b, WarpSums& sums) {
    const unsigned row = threadIdx.x % 32 / 4;
    Matrices a[kTileRows / 16][kMostParts];
#pragma unroll
    for (unsigned m = 0; m < kTileRows / 16; ++m) {
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned line = 16 * m + row + i % 2 * 8;
        float2 pair = get_pair(slices[0], depth_is_rows_of_a, line, i / 2 * 8);
        if (kMasked && has_mask) {
          const float2 y = get_pair(slices[1], depth_is_rows_of_a, line, i / 2 * 8);
          pair = {relu_gradient(y.x, pair.x), relu_gradient(y.y, pair.y)};
        }
        for (unsigned part = 0; part < kMostParts; ++part) a[m][part].values[i] = take_part(pair);
      }
    }
#pragma unroll
    for (unsigned n = 0; n < kTileColumns / 8; ++n) {
      std::uint32_t b[kMostParts][2];
#pragma unroll
      for (unsigned i = 0; i < 2; ++i) {
        float2 pair = get_pair(slices[kFactorsOf<kMasked> - 1], depth_is_rows_of_b, 8 * n + row, i * 8);
        for (unsigned part = 0; part < kMostParts; ++part) b[part][i] = take_part(pair);
      }
      // The smallest products first, and the sum as add_product() says.
      for (unsigned m = 0; m < kTileRows / 16; ++m) {
        float step[4] = {};
#pragma unroll
        for (unsigned both = kMostParts; both-- > 0;) {
          if (both >= parts) continue;
          for (unsigned of_a = 0; of_a <= both; ++of_a) {
            multiply_add(step, a[m][of_a], b[both - of_a][0], b[both - of_a][1]);
          }
        }
        for (unsigned i = 0; i < 4; ++i) sums[m][n][i] += step[i];
      }
    }
  }

 private:
  // Where vector v of a slice lies: its line, and the vector in it.
  struct Line {
    unsigned line, vector;
    __device__ Line(bool depth_is_rows, unsigned v)
        : line(depth_is_rows ? v / 8 : v / 4), vector(depth_is_rows ? v % 8 : v % 4) {}
  };

  // The calling lane's two values of a fragment, adjacent in the depth, which begins at `k`; `line`: of a matrix with the depth
  // in its columns.
  static __device__ float2 get_pair(const Vector* slice, bool depth_is_rows, unsigned line, unsigned k) {
    k += threadIdx.x % 4 * 2;
    if (!depth_is_rows) {
      return *reinterpret_cast<const float2*>(slice[place_of(false, line, k / 4)].values + k % 4);
    }
    return {slice[place_of(true, k, line / 4)].values[line % 4],
            slice[place_of(true, k + 1, line / 4)].values[line % 4]};
  }

  // The next part of a pair, of which the rest is left.
  static __device__ std::uint32_t take_part(float2& pair) {
    const __nv_bfloat162 part = __floats2bfloat162_rn(pair.x, pair.y);
    pair.x -= __low2float(part);
    pair.y -= __high2float(part);
    return word_of(part);
  }
};

}  // namespace ddp::cuda
