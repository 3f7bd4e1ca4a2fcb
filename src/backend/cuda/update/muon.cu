// What surrounds the products of Muon's update (muon.cpp): momentum and norms of all matrices, the matrices that products
// take, and the step that they give. All read and write 32 x 32 tiles through shared memory, so that accesses lie together
// whether a matrix is transposed or not.
#include "backend/cuda/update/update.cuh"
#include "backend/cuda/update/update.h"
#include "optim/rules/muon.h"
#include "optim/rules/update.h"

namespace ddp::cuda {
namespace {

constexpr unsigned kTileSide = 32;
constexpr unsigned kTileLines = 8;  // that a block reads at once

__host__ __device__ std::int64_t tiles_along(std::int64_t count) { return (count + kTileSide - 1) / kTileSide; }

// A tile of a batch.
struct MatrixTile {
  UpdateMatrix matrix;
  bool transposed;   // the batch has the matrix transposed
  std::int64_t row;  // where the tile begins in the matrix
  std::int64_t column;
  std::int64_t batch_row;  // where it begins in the batch, whose matrices lie one behind the other
  std::int64_t batch_column;
  std::int64_t begin;  // of the matrix in the batch

  __device__ MatrixTile(const MatrixBatch& batch, std::int64_t index) {
    const std::int64_t across = tiles_along(batch.large);
    const std::int64_t down = tiles_along(batch.small);
    const std::int64_t which = index / (across * down);
    matrix = batch.matrices[which];
    transposed = matrix.rows > matrix.columns;
    batch_row = index / across % down * kTileSide;
    batch_column = index % across * kTileSide;
    row = transposed ? batch_column : batch_row;
    column = transposed ? batch_row : batch_column;
    begin = which * batch.small * batch.large;
  }

  // Whether the batch, or the matrix, has the element of this line and thread.
  __device__ bool in_batch(const MatrixBatch& batch, unsigned line) const {
    return batch_row + line < batch.small && batch_column + threadIdx.x < batch.large;
  }
  __device__ bool in_matrix(unsigned line) const {
    return row + line < matrix.rows && column + threadIdx.x < matrix.columns;
  }
  // Its index.
  __device__ std::size_t batch_index(const MatrixBatch& batch, unsigned line) const {
    return static_cast<std::size_t>(begin + (batch_row + line) * batch.large + batch_column + threadIdx.x);
  }
  __device__ std::int64_t matrix_index(unsigned line) const {
    return (row + line) * matrix.columns + column + threadIdx.x;
  }
};

// Momentum of the chunks of matrices that are trained, and sums of squares of their direction and their weights.
__global__ void muon_momentum_kernel(const UpdateArguments a) {
  __shared__ double tree[kThreads];
  if (*a.skip != 0) return;
  const StepNumbers numbers = numbers_of(a);
  const ElementNumbers n = element_numbers(a.settings, numbers, 1, 1, 1);
  const auto momentum = static_cast<float>(a.settings.muon_momentum);
  for (std::int64_t c = blockIdx.x; c < a.chunk_count; c += gridDim.x) {
    const UpdateChunk chunk = a.chunks[c];
    const bool updated = chunk.in_matrix && numbers.control.step <= chunk.last_step;
    const std::int64_t end = updated ? chunk.begin + chunk.count : 0;
    double direction = 0;
    double weights = 0;
    for (std::int64_t i = chunk.begin + threadIdx.x; i < end; i += kThreads) {
      direction += squared(muon_direction(n, momentum, a.gradient[i], a.first[i]));
      weights += squared(a.weights[i]);
    }
    put_sums(tree, a, c, direction, weights);
  }
}

// The sums of the first chunk of each matrix become those of the whole matrix.
__global__ void muon_norms_kernel(const UpdateArguments a) {
  __shared__ double tree[kThreads];
  for (std::int64_t s = blockIdx.x; s < a.segment_count; s += gridDim.x) {
    const ChunksOfSegment segment = a.segments[s];
    const std::int64_t count = segment.count > 0 && a.chunks[segment.first].in_matrix ? segment.count : 0;
    const double direction = sum_over(tree, a, segment.first, count, 0);
    const double weights = sum_over(tree, a, segment.first, count, 1);
    if (count > 0 && threadIdx.x == 0) {
      a.sums[2 * segment.first] = direction;
      a.sums[2 * segment.first + 1] = weights;
    }
  }
}

// The directions, each divided by its norm; zeros behind their rows and columns.
template <class T>
__global__ void muon_directions_kernel(const UpdateArguments a, const MatrixBatch batch, std::int64_t tiles, T* x) {
  __shared__ float tile[kTileSide][kTileSide + 1];
  if (*a.skip != 0) return;
  const ElementNumbers n = element_numbers(a.settings, numbers_of(a), 1, 1, 1);
  const auto momentum = static_cast<float>(a.settings.muon_momentum);
  for (std::int64_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    const MatrixTile at(batch, index);
    const std::int64_t chunk = a.segments[at.matrix.segment].first;
    const double norm = std::sqrt(a.sums[2 * chunk]);
    const auto factor = static_cast<float>(1 / (norm > kMuonEpsilon ? norm : kMuonEpsilon));
    for (unsigned line = threadIdx.y; line < kTileSide; line += kTileLines) {
      float value = 0;
      if (at.in_matrix(line)) {
        const std::int64_t i = a.chunks[chunk].begin + at.matrix_index(line);
        value = factor * muon_nesterov(clipped(n, a.gradient[i]), momentum, a.first[i]);
      }
      tile[line][threadIdx.x] = value;
    }
    __syncthreads();
    for (unsigned line = threadIdx.y; line < kTileSide; line += kTileLines) {
      if (!at.in_batch(batch, line)) continue;
      put(x, at.batch_index(batch, line), at.transposed ? tile[threadIdx.x][line] : tile[line][threadIdx.x]);
    }
    __syncthreads();
  }
}

// The new weights, and their average, from what the iteration has made of the directions.
template <class T>
__global__ void muon_weights_kernel(const UpdateArguments a, const MatrixBatch batch, std::int64_t tiles, const T* x) {
  __shared__ float tile[kTileSide][kTileSide + 1];
  if (*a.skip != 0) return;
  const StepNumbers numbers = numbers_of(a);
  for (std::int64_t index = blockIdx.x; index < tiles; index += gridDim.x) {
    const MatrixTile at(batch, index);
    const std::int64_t first = a.segments[at.matrix.segment].first;
    const UpdateChunk chunk = a.chunks[first];
    const bool trained = numbers.control.step <= chunk.last_step;
    const ElementNumbers n = muon_numbers(a.settings, numbers_for(numbers, chunk), chunk.lr_scale, chunk.decay_scale,
                                          muon_scale(a.settings.muon_scale, at.matrix.rows, at.matrix.columns));
    const double norm = a.settings.muon_normalizes ? std::sqrt(a.sums[2 * first + 1]) : 0;
    const auto factor = static_cast<float>(norm > 0 ? std::sqrt(static_cast<double>(at.matrix.rows)) / norm : 1);
    for (unsigned line = threadIdx.y; line < kTileSide; line += kTileLines) {
      tile[line][threadIdx.x] = at.in_batch(batch, line) ? get(x, at.batch_index(batch, line)) : 0;
    }
    __syncthreads();
    for (unsigned line = threadIdx.y; line < kTileSide; line += kTileLines) {
      if (!at.in_matrix(line)) continue;
      const std::int64_t i = chunk.begin + at.matrix_index(line);
      const float direction = at.transposed ? tile[threadIdx.x][line] : tile[line][threadIdx.x];
      const float before = a.weights[i];
      const float after = trained ? muon_weight(n, factor, before, direction) : before;
      a.weights[i] = after;
      if (a.average != nullptr) follow(n, before, after, a.average[i]);
    }
    __syncthreads();
  }
}

std::int64_t tiles_of(const MatrixBatch& batch) {
  return batch.count * tiles_along(batch.small) * tiles_along(batch.large);
}

}  // namespace

void muon_momentum(cudaStream_t stream, const UpdateArguments& a) {
  launch(stream, blocks_of(a.chunk_count), kThreads, muon_momentum_kernel, a);
  launch(stream, blocks_of(a.segment_count), kThreads, muon_norms_kernel, a);
}

void muon_directions(cudaStream_t stream, Element element, const UpdateArguments& a, const MatrixBatch& batch,
                     void* x) {
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t tiles = tiles_of(batch);
    launch(stream, blocks_of(tiles), dim3(kTileSide, kTileLines), muon_directions_kernel<T>, a, batch, tiles, as<T>(x));
  });
}

void muon_weights(cudaStream_t stream, Element element, const UpdateArguments& a, const MatrixBatch& batch,
                  const void* x) {
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t tiles = tiles_of(batch);
    launch(stream, blocks_of(tiles), dim3(kTileSide, kTileLines), muon_weights_kernel<T>, a, batch, tiles, as<T>(x));
  });
}

}  // namespace ddp::cuda
