// Muon's update of whole matrices (optim/rules/muon.h). Every element of a product is one sum in a fixed order, so the bits
// do not depend on the number of threads.
#include "optim/rules/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "backend/cpu/isa/instruction_set.h"
#include "backend/cpu/update/matrix_kernels.h"
#include "backend/cpu/update/squares.h"
#include "backend/cpu/update/update.h"
#include "backend/memory.h"
#include "backend/update/matrix_update.h"
#include "optim/rules/update.h"

LANES_TABLE(MatrixKernels, matrix_kernels)

namespace ddp {
namespace {

// The scratch of a matrix, in floats from its beginning, where the matrix itself is: with its smaller side first.
struct MatrixScratch {
  MatrixScratch(std::int64_t rows, std::int64_t columns)
      : small(std::min(rows, columns)),
        large(std::max(rows, columns)),
        next(aligned(small * large)),
        gram(next + aligned(small * large)),
        polynomial(gram + aligned(small * small)),
        panels(polynomial + aligned(small * small)) {}
  std::int64_t elements() const { return panels + (small + kMostPanel) * (large + kMostPanel); }

  static constexpr std::int64_t kMostPanel = 64;  // columns that a kernel multiplies together
  std::int64_t small;
  std::int64_t large;
  std::int64_t next;        // the matrix after one more iteration
  std::int64_t gram;        // the products of its rows
  std::int64_t polynomial;  // what the matrix is multiplied by
  std::int64_t panels;      // a right factor in the order of the kernel

 private:
  static std::int64_t aligned(std::int64_t floats) {
    return static_cast<std::int64_t>(aligned_bytes(static_cast<std::size_t>(floats) * sizeof(float)) / sizeof(float));
  }
};

// Tiles of a transposition that stay in the first cache.
constexpr std::int64_t kTransposed = 32;

void transpose(const float* from, std::int64_t rows, std::int64_t columns, float* to) {
#pragma omp parallel for schedule(static)
  for (std::int64_t begin = 0; begin < columns; begin += kTransposed) {
    const std::int64_t end = std::min(columns, begin + kTransposed);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = begin; c < end; ++c) to[c * rows + r] = from[r * columns + c];
    }
  }
}

// to = scale left right + addend_scale addend, where `right` has elements `column_step` apart in a row and `row_step` in a
// column.
struct RightFactor {
  const float* values;
  std::int64_t row_step;
  std::int64_t column_step;
};
void multiply(lanes::MatrixProduct product, const RightFactor& right, float* panels) {
  const lanes::MatrixKernels& kernels = lanes::matrix_kernels();
  const std::int64_t width = kernels.panel;
  product.panels = panels;
#pragma omp parallel for schedule(static)
  for (std::int64_t first = 0; first < product.columns; first += width) {
    float* panel = panels + first * product.depth;
    const std::int64_t columns = std::min(width, product.columns - first);
    for (std::int64_t k = 0; k < product.depth; ++k) {
      const float* from = right.values + k * right.row_step + first * right.column_step;
      for (std::int64_t c = 0; c < columns; ++c) panel[k * width + c] = from[c * right.column_step];
      for (std::int64_t c = columns; c < width; ++c) panel[k * width + c] = 0;
    }
    kernels.multiply(product, first / width);
  }
}

// The matrix at the beginning of `scratch`, of norm 1 at most and with no more rows than columns, becomes nearly
// orthogonal. Returns where it is then.
float* orthogonalise(const MatrixScratch& at, float* scratch, int steps) {
  const std::int64_t small = at.small;
  const std::int64_t large = at.large;
  float* x = scratch;
  float* next = scratch + at.next;
  float* gram = scratch + at.gram;
  float* polynomial = scratch + at.polynomial;
  float* panels = scratch + at.panels;
  for (int step = 0; step < steps; ++step) {
    multiply({.rows = small, .depth = large, .columns = small, .left = x, .to = gram}, {x, 1, large}, panels);
    multiply({.rows = small,
              .depth = small,
              .columns = small,
              .left = gram,
              .scale = kMuonQuintic,
              .addend = gram,
              .addend_scale = kMuonCubic,
              .to = polynomial},
             {gram, small, 1}, panels);
    multiply({.rows = small,
              .depth = small,
              .columns = large,
              .left = polynomial,
              .addend = x,
              .addend_scale = kMuonLinear,
              .to = next},
             {x, large, 1}, panels);
    std::swap(x, next);
  }
  return x;
}

// One matrix of an update.
class OneMatrix {
 public:
  OneMatrix(const UpdateArguments& arguments, const UpdateMatrix& matrix)
      : a_(arguments),
        matrix_(matrix),
        segment_(arguments.segments[matrix.segment]),
        begin_(arguments.chunks[segment_.first].begin),
        scratch_(matrix.rows, matrix.columns),
        values_(static_cast<float*>(static_cast<void*>(arguments.matrix_scratch))),
        numbers_(muon_numbers(arguments.settings, numbers_for(*arguments.numbers, arguments.chunks[segment_.first]),
                              static_cast<double>(arguments.chunks[segment_.first].lr_scale),
                              static_cast<double>(segment_.decay_scale),
                              muon_scale(arguments.settings.muon_scale, matrix.rows, matrix.columns))) {}

  void run() {
    const bool trained = a_.control->step <= a_.chunks[segment_.first].last_step;
    const float* direction = nullptr;
    double factor = 1;
    if (trained) {
      find_direction();
      if (a_.settings.muon_normalizes) factor = normalization();
      direction = orthogonal_direction();
    }
    const auto scale = static_cast<float>(factor);
    over_chunks([&](std::int64_t from, std::int64_t count) {
      float* weights = a_.weights + begin_ + from;
      for (std::int64_t i = 0; i < count; ++i) {
        const float before = weights[i];
        if (trained) weights[i] = muon_weight(numbers_, scale, before, direction[from + i]);
        if (a_.average != nullptr) follow(numbers_, before, weights[i], a_.average[begin_ + from + i]);
      }
    });
  }

 private:
  template <class Work>
  void over_chunks(const Work& work) {
#pragma omp parallel for schedule(static)
    for (std::int64_t c = segment_.first; c < segment_.first + segment_.count; ++c) {
      work(a_.chunks[c].begin - begin_, a_.chunks[c].count);
    }
  }

  // Into the scratch, with the sums of squares of it and of the weights for each chunk.
  void find_direction() {
    const auto momentum = static_cast<float>(a_.settings.muon_momentum);
    over_chunks([&](std::int64_t from, std::int64_t count) {
      const float* gradient = a_.gradient + begin_ + from;
      const float* weights = a_.weights + begin_ + from;
      float* first = a_.first + begin_ + from;
      float* direction = values_ + from;
      for (std::int64_t i = 0; i < count; ++i) direction[i] = muon_direction(numbers_, momentum, gradient[i], first[i]);
      double* sums = a_.sums + 2 * (segment_.first + from / kUpdateChunk);
      sums[0] = sum_of_squares(count, [direction](std::int64_t i) { return direction[i]; });
      sums[1] = sum_of_squares(count, [weights](std::int64_t i) { return weights[i]; });
    });
  }

  double norm(int which) const {
    double sum = 0;
    for (std::int64_t c = segment_.first; c < segment_.first + segment_.count; ++c) sum += a_.sums[2 * c + which];
    return std::sqrt(sum);
  }

  // The factor that gives the weights the norm of an orthogonal matrix; 1 if all are 0.
  double normalization() const {
    const double weights = norm(1);
    return weights > 0 ? std::sqrt(static_cast<double>(matrix_.rows)) / weights : 1;
  }

  // Row by row, as the weights are.
  const float* orthogonal_direction() {
    const auto factor = static_cast<float>(1 / std::max(norm(0), kMuonEpsilon));
    float* x = values_;
    over_chunks([&](std::int64_t from, std::int64_t count) {
      for (std::int64_t i = from; i < from + count; ++i) x[i] *= factor;
    });
    if (matrix_.rows <= matrix_.columns) return orthogonalise(scratch_, x, a_.settings.muon_steps);
    transpose(x, matrix_.rows, matrix_.columns, x + scratch_.next);
    std::copy_n(x + scratch_.next, matrix_.rows * matrix_.columns, x);
    const float* tall = orthogonalise(scratch_, x, a_.settings.muon_steps);
    float* other = tall == x ? x + scratch_.next : x;
    transpose(tall, matrix_.columns, matrix_.rows, other);
    return other;
  }

  const UpdateArguments& a_;
  const UpdateMatrix& matrix_;
  const ChunksOfSegment& segment_;
  std::int64_t begin_;  // of the matrix in the flat buffers
  MatrixScratch scratch_;
  float* values_;  // the scratch
  ElementNumbers numbers_;
};

// One matrix after the other, in the same scratch.
class CpuMatrixUpdate final : public MatrixUpdate {
 public:
  explicit CpuMatrixUpdate(std::span<const UpdateMatrix> matrices) : matrices_(matrices.begin(), matrices.end()) {}

  std::size_t scratch_bytes() const override {
    std::int64_t most = 0;
    for (const UpdateMatrix& each : matrices_) most = std::max(most, MatrixScratch(each.rows, each.columns).elements());
    return static_cast<std::size_t>(most) * sizeof(float);
  }
  void run(const UpdateArguments& arguments) override {
    for (const UpdateMatrix& each : matrices_) OneMatrix(arguments, each).run();
  }

 private:
  std::vector<UpdateMatrix> matrices_;
};

}  // namespace

std::unique_ptr<MatrixUpdate> make_cpu_matrix_update(std::span<const UpdateMatrix> matrices) {
  return std::make_unique<CpuMatrixUpdate>(matrices);
}

}  // namespace ddp
