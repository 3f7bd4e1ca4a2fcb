// Activations as rows of channels and their mapping to threads, for kernels with a coefficient or a sum per channel.
//
// Note [Rows and channels]
// An activation is `rows` (samples x positions) times `channels`. A block processes some channels of a chunk of rows:
// its threads along x are columns of kWidth channels each, those along y are lines, which take every lines-th row.
//   nhwc   the channels of a row are contiguous, and so are columns; kWidth is 16 bytes if the channels allow it, and
//          the columns of a row at most 128 bytes, a whole line of the cache, so that a block has few chunks to add
//   plain  the positions of a channel are contiguous: one column, and adjacent lines take adjacent positions
// The numbers of columns, lines and chunks depend only on the shape. Each line sums its rows, then lines are added by a
// binary tree, then chunks, again by lines and a tree: always in the same order.
//
// One wave of blocks saturates memory: kMostTiles is the number that a GPU with 132 multiprocessors runs at once with
// kTileBlocks blocks each, so that there is no partial second wave.
//
//   const Rows rows = rows_of(samples, shape, layout);
//   with_rows(element, rows, [&](auto zero, auto access) {
//     const Tiling tiling(rows, decltype(access)::kWidth);
//     launch(stream, tiling.blocks(), tiling.threads(), sum_kernel<decltype(zero), decltype(access)>, rows, tiling, x);
//   });
#pragma once

#include <cstdint>

#include "backend/cuda/code/divisor.cuh"
#include "backend/cuda/code/last_block.cuh"
#include "backend/cuda/code/vector.cuh"
#include "backend/tensor.h"

namespace ddp::cuda {

struct Rows {
  std::uint32_t rows;
  std::uint32_t channels;
  std::uint32_t positions;  // per sample in the plain layout; 0: the channels of a row are contiguous
};

inline Rows rows_of(std::int64_t samples, const Shape& shape, Layout layout) {
  const auto positions = static_cast<std::uint32_t>(shape.height * shape.width);
  return {static_cast<std::uint32_t>(samples) * positions, static_cast<std::uint32_t>(shape.channels),
          layout == Layout::plain && positions > 1 ? positions : 0};
}

// The addressing of elements; see Note [Rows and channels].
template <unsigned kChannels, bool kPlain>
struct Access {
  static constexpr unsigned kWidth = kChannels;

  static __device__ std::size_t place(const Rows& r, std::uint32_t row, std::uint32_t channel) {
    if constexpr (kPlain) {
      const std::size_t plane = static_cast<std::size_t>(row / r.positions) * r.channels + channel;
      return plane * r.positions + row % r.positions;
    } else {
      return static_cast<std::size_t>(row) * r.channels + channel;
    }
  }
};

// Calls f with a value of the element's type and the suitable Access.
template <class F>
void with_rows(Element element, const Rows& rows, F f) {
  with_element(element, [&](auto zero) {
    constexpr unsigned kWidth = kVector<decltype(zero)>;
    if (rows.positions > 0) {
      f(zero, Access<1, true>{});
    } else if (rows.channels % kWidth == 0) {
      f(zero, Access<kWidth, false>{});
    } else {
      f(zero, Access<1, false>{});
    }
  });
}

// Blocks per multiprocessor for which kernels leave registers.
inline constexpr unsigned kTileBlocks = 3;

inline constexpr unsigned kMostColumns = 8;

class Tiling {
 public:
  Tiling(const Rows& r, unsigned width) {
    const unsigned wanted = r.positions > 0 ? 1 : (r.channels + width - 1) / width;
    while (columns_ < wanted && columns_ < kMostColumns) columns_ *= 2;
    lines_ = kThreads / columns_;
    groups_ = (r.channels + columns_ * width - 1) / (columns_ * width);
    const unsigned most = groups_ < kMostTiles / kLeastChunks ? kMostTiles / groups_ : kLeastChunks;
    const unsigned chunks = r.rows / (lines_ * kRowsPerThread);
    chunks_ = Divisor(chunks < 1 ? 1 : chunks < most ? chunks : most);
    rows_per_chunk_ = (r.rows + chunks_.number() - 1) / chunks_.number();
  }

  dim3 blocks() const { return {groups_ * chunks_.number()}; }
  // Groups of channels; the blocks of one share a ticket (last_block.cuh).
  unsigned groups() const { return groups_; }
  dim3 threads() const { return {columns_, lines_}; }
  __host__ __device__ std::uint32_t chunks() const { return chunks_.number(); }

  // For the calling thread: the chunk, its first channel, and its rows: every lines-th from first_row to end_row.
  __device__ std::uint32_t chunk() const { return chunks_.remainder(blockIdx.x, group()); }
  __device__ std::uint32_t group() const { return chunks_.quotient(blockIdx.x); }
  __device__ std::uint32_t channel(unsigned width) const { return (group() * columns_ + threadIdx.x) * width; }
  __device__ std::uint32_t first_row() const { return chunk() * rows_per_chunk_ + threadIdx.y; }
  __device__ std::uint32_t end_row(const Rows& r) const {
    const std::uint32_t end = (chunk() + 1) * rows_per_chunk_;
    return end < r.rows ? end : r.rows;
  }
  // Rows of a chunk.
  __device__ std::uint32_t begin_of(std::uint32_t chunk) const { return chunk * rows_per_chunk_; }
  __device__ std::uint32_t rows_in(const Rows& r, std::uint32_t chunk) const {
    const std::uint32_t begin = chunk * rows_per_chunk_;
    return begin >= r.rows ? 0 : r.rows - begin < rows_per_chunk_ ? r.rows - begin : rows_per_chunk_;
  }

 private:
  static constexpr unsigned kRowsPerThread = 4;
  static constexpr unsigned kMostTiles = 384;
  static constexpr unsigned kLeastChunks = 4;

  unsigned columns_ = 1;
  unsigned lines_ = 1;
  unsigned groups_ = 1;
  Divisor chunks_;
  std::uint32_t rows_per_chunk_ = 0;
};
// The floats of two sums of each channel over each chunk.
inline std::int64_t chunk_sum_elements(Element element, const Rows& rows) {
  std::uint32_t chunks = 0;
  with_rows(element, rows, [&](auto, auto access) { chunks = Tiling(rows, decltype(access)::kWidth).chunks(); });
  return std::int64_t{chunks} * 2 * rows.channels;
}

// Chunks that are interleaved: the blocks take slabs of one row for each line in turn, so that at any time all of them read
// and write neighbouring memory, which is faster, and what they have touched last is one end of the activation.
class Interleaved : public Tiling {
 public:
  Interleaved(const Rows& r, unsigned width) : Tiling(r, width) {
    const unsigned lines = threads().y;
    const std::uint32_t slabs = r.rows / lines;
    complete_ = slabs / chunks() * lines;
    longer_ = slabs % chunks();
    rest_ = r.rows % lines;
  }

  __device__ std::uint32_t begin_of(std::uint32_t chunk) const { return chunk * blockDim.y; }
  __device__ std::uint32_t rows_in(const Rows& /*rows*/, std::uint32_t chunk) const {
    return complete_ + (chunk < longer_ ? blockDim.y : chunk == longer_ ? rest_ : 0U);
  }

 private:
  std::uint32_t complete_ = 0;  // rows of the slabs that every chunk has
  std::uint32_t longer_ = 0;    // the first chunks that have one more slab; the next one has the rest
  std::uint32_t rest_ = 0;
};

// The end of the rows at which a kernel begins. The kernel after it begins at the other one: what was touched last may still
// be in the second-level cache.
enum class From { begin, end };

// Calls use(row, load(row)) for each row of the thread, with kAtOnce loads in flight to hide memory latency.
template <unsigned kAtOnce, From kFrom, class Load, class Use>
__device__ inline void each_row(const Rows& rows, const Interleaved& tiling, Load load, Use use) {
  const std::uint32_t step = tiling.chunks() * blockDim.y;
  std::uint32_t row = tiling.begin_of(tiling.chunk()) + threadIdx.y;
  if (row >= rows.rows) return;
  std::uint32_t left = (rows.rows - row + step - 1) / step;
  if (kFrom == From::end) row += (left - 1) * step;
  const auto place = [&](unsigned k) { return kFrom == From::begin ? row + k * step : row - k * step; };
  while (true) {
    decltype(load(row)) loaded[kAtOnce];
    for (unsigned k = 0; k < kAtOnce; ++k) {
      if (k < left) loaded[k] = load(place(k));
    }
    for (unsigned k = 0; k < kAtOnce; ++k) {
      if (k < left) use(place(k), loaded[k]);
    }
    if (left <= kAtOnce) return;
    left -= kAtOnce;
    row = place(kAtOnce);
  }
}

__device__ inline unsigned thread_of_block() { return threadIdx.y * blockDim.x + threadIdx.x; }

// Merges the lines of a block, each of `columns` threads: tree[j][thread] of all threads into those of line 0, by a binary
// tree. All threads of the block call it after they have filled the tree.
template <unsigned kWidth, class Sum, unsigned kCount, class Merge>
__device__ inline void merge_lines(Sum (&tree)[kWidth][kCount], unsigned columns, unsigned lines, Merge merge) {
  const unsigned thread = thread_of_block();
  unsigned half = 0;
  for (unsigned left = lines; left > 1; left = half) {
    __syncthreads();
    half = (left + 1) / 2;
    if (thread >= (left - half) * columns) continue;
    for (unsigned j = 0; j < kWidth; ++j) tree[j][thread] = merge(tree[j][thread], tree[j][thread + half * columns]);
  }
  __syncthreads();
}
template <unsigned kWidth, class Sum, unsigned kCount, class Merge>
__device__ inline void merge_lines(Sum (&tree)[kWidth][kCount], Merge merge) {
  merge_lines(tree, blockDim.x, blockDim.y, merge);
}

// Where code for each channel of a block's columns would be repeated for those of a column, one thread per channel executes it
// (Note [Short code] in conv_tile.cuh): thread i has channel i of the block, which is number i % width of column i / width. Calls
// use(channel) if the thread has one below `channels`; `column_channel`: the first channel of its column.
template <class Use>
__device__ inline void with_channel_of_thread(std::uint32_t column_channel, unsigned width, std::uint32_t channels,
                                              Use use) {
  const std::uint32_t channel = column_channel - threadIdx.x * width + thread_of_block();
  if (thread_of_block() < blockDim.x * width && channel < channels) use(channel);
}

// Two sums over the same rows.
struct Sums {
  float first;
  float second;

  static constexpr bool kShifted = false;
  static __device__ Sums of(std::uint32_t /*rows*/, float /*shift*/, float first, float second) {
    return {first, second};
  }
};
__device__ inline Sums added(const Sums& a, const Sums& b) { return {a.first + b.first, a.second + b.second}; }
__device__ inline Sums merged(const Sums& a, const Sums& b) { return added(a, b); }

// Blocks that add the chunks' sums: few channels and many lines each.
inline constexpr unsigned kChunkColumns = 8;
inline constexpr unsigned kChunkLines = 64;
inline constexpr unsigned kChunkThreads = kChunkColumns * kChunkLines;
inline unsigned chunk_blocks(std::uint32_t channels) { return (channels + kChunkColumns - 1) / kChunkColumns; }

// Calls use(chunk, sums) for each chunk of the thread's line; `partial` is [chunks][2][channels]. Enough loads are in
// flight that one round suffices for most shapes and takes only one memory latency.
template <class Use>
__device__ inline void each_chunk(const float* partial, std::uint32_t channels, std::uint32_t channel,
                                  std::uint32_t chunks, Use use) {
  constexpr unsigned kAtOnce = 8;
  for (std::uint32_t first = threadIdx.y; first < chunks; first += kAtOnce * kChunkLines) {
    Sums loaded[kAtOnce];
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const std::uint32_t chunk = first + k * kChunkLines;
      const float* sums = partial + static_cast<std::size_t>(chunk) * 2 * channels + channel;
      if (chunk < chunks) loaded[k] = {sums[0], sums[channels]};
    }
    for (unsigned k = 0; k < kAtOnce; ++k) {
      if (first + k * kChunkLines < chunks) use(first + k * kChunkLines, loaded[k]);
    }
  }
}

// Writes the sums of a block's chunk to `partial`. Each thread has left those of the channels from `channel` on, which its column
// has, in the tree.
template <unsigned kWidth, unsigned kCount, class Mapped>
__device__ inline void merge_chunk_sums(const Rows& rows, const Mapped& tiling, Sums (&tree)[kWidth][kCount],
                                        std::uint32_t channel, float* partial) {
  merge_lines(tree, added);
  with_channel_of_thread(channel, kWidth, rows.channels, [&](std::uint32_t mine) {
    float* result = partial + static_cast<std::size_t>(tiling.chunk()) * 2 * rows.channels + mine;
    const Sums sums = tree[thread_of_block() % kWidth][thread_of_block() / kWidth];
    result[0] = sums.first;
    result[rows.channels] = sums.second;
  });
}
template <unsigned kWidth, unsigned kCount, class Mapped>
__device__ inline void put_chunk_sums(const Rows& rows, const Mapped& tiling, Sums (&tree)[kWidth][kCount],
                                      const Sums (&sums)[kWidth], std::uint32_t channel, float* partial) {
  for (unsigned j = 0; j < kWidth; ++j) tree[j][thread_of_block()] = sums[j];
  merge_chunk_sums(rows, tiling, tree, channel, partial);
}

// Channels that a thread adds up at once in each_channel().
template <unsigned kWidth>
inline constexpr unsigned kTogether = kWidth % 4 == 0 ? 4 : 1;

// Merges what all blocks of the calling block's group have left in `partial`, [chunks][2][channels], and calls
// use(channel, merged) in one thread for each channel; Sum::of(rows of the chunk, shift, first, second) makes a sum of two
// values, where the shift is the first value of the first chunk if Sum::kShifted. The block must be the last of its group; all of its threads, kCount, call it. Enough loads are in flight that most
// shapes take one or two memory latencies. Mapped: the kernel's tiling, and Whole: what it divides, with a number of channels.
template <unsigned kWidth, unsigned kCount, class Whole, class Mapped, class Sum, class Use>
__device__ inline void each_channel(const Whole& whole, const Mapped& tiling, const float* partial,
                                    Sum (&tree)[kTogether<kWidth>][kCount], Use use) {
  const auto channels = static_cast<std::uint32_t>(whole.channels);
  constexpr unsigned kSome = kTogether<kWidth>;
  constexpr unsigned kAtOnce = 16 / kSome;
  const unsigned columns = blockDim.x * kWidth / kSome;
  const unsigned lines = kCount / columns;
  const unsigned thread = thread_of_block();
  const std::uint32_t channel = tiling.group() * blockDim.x * kWidth + thread % columns * kSome;
  const bool inside = channel < channels;
  Sum all[kSome] = {};
  Pack<float, kSome> shift{};
  if (Sum::kShifted && inside) shift = get_fresh<kSome>(partial + channel);
  for (std::uint32_t first = thread / columns; inside && first < tiling.chunks(); first += kAtOnce * lines) {
    Pack<float, kSome> loaded[kAtOnce][2];
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const std::uint32_t chunk = first + k * lines;
      if (chunk >= tiling.chunks()) continue;
      const float* sums = partial + static_cast<std::size_t>(chunk) * 2 * channels + channel;
      loaded[k][0] = get_fresh<kSome>(sums);
      loaded[k][1] = get_fresh<kSome>(sums + channels);
    }
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const std::uint32_t chunk = first + k * lines;
      if (chunk >= tiling.chunks()) continue;
      const std::uint32_t rows = Sum::kShifted ? tiling.rows_in(whole, chunk) : 0;
      for (unsigned j = 0; j < kSome; ++j) {
        const Sum some = Sum::of(rows, shift.values[j], loaded[k][0].values[j], loaded[k][1].values[j]);
        all[j] = merged(all[j], some);
      }
    }
  }
  for (unsigned j = 0; j < kSome; ++j) tree[j][thread] = all[j];
  merge_lines(tree, columns, lines, [](const Sum& a, const Sum& b) { return merged(a, b); });
  const std::uint32_t of_column = (tiling.group() * blockDim.x + threadIdx.x) * kWidth;
  with_channel_of_thread(of_column, kWidth, channels,
                         [&](std::uint32_t mine) { use(mine, tree[thread % kSome][thread / kSome]); });
}

// The sums of all chunks for one channel, valid in line 0, by a block of kChunkColumns x kChunkLines.
__device__ inline Sums sum_chunks(const Rows& rows, const Tiling& tiling, Sums (&tree)[1][kChunkThreads],
                                  std::uint32_t channel, const float* partial) {
  Sums all{0.0F, 0.0F};
  if (channel < rows.channels) {
    each_chunk(partial, rows.channels, channel, tiling.chunks(),
               [&](std::uint32_t /*chunk*/, const Sums& sums) { all = added(all, sums); });
  }
  tree[0][threadIdx.y * kChunkColumns + threadIdx.x] = all;
  merge_lines(tree, added);
  return tree[0][threadIdx.x];
}

// By a block of kChunkColumns x kChunkLines: calls use(i, sum) for some of `count` sums over the chunks.
template <class Use>
__device__ inline void add_chunks(const float* partial, unsigned chunks, unsigned count, Use use) {
  __shared__ float tree[1][kChunkThreads];
  const unsigned i = blockIdx.x * kChunkColumns + threadIdx.x;
  float sum = 0.0F;
  for (unsigned chunk = threadIdx.y; i < count && chunk < chunks; chunk += kChunkLines) {
    sum += partial[static_cast<std::size_t>(chunk) * count + i];
  }
  tree[0][threadIdx.y * kChunkColumns + threadIdx.x] = sum;
  merge_lines(tree, [](float a, float b) { return a + b; });
  if (threadIdx.y == 0 && i < count) use(i, tree[0][threadIdx.x]);
}

}  // namespace ddp::cuda
