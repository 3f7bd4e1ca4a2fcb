#include "backend/cpu/conv/amx/amx_gradient.h"

#include <omp.h>

#include <algorithm>

#include "backend/arithmetic.h"
#include "backend/cpu/conv/tiles/shapes.h"
#include "backend/cpu/device/values.h"

namespace ddp {
namespace {

using lanes::ConvShape;
using lanes::kAmxRows;
using lanes::kAmxTile;

// Floats of an image and a gradient whose products are summed together, so that they stay in the second-level cache, and the most
// pairs of blocks that make them up. They determine the order of additions, so they must not depend on the number of threads.
constexpr std::int64_t kAmxPiece = 256 * 1024;
constexpr std::int64_t kAmxMostPairs = 4;

AmxWindow window_of(const ConvShape& s) {
  return amx_window(s, [&](int depth) { return tile_count(std::int64_t{s.kernel_w} * depth, kAmxRows); });
}

}  // namespace

template <class Value>
AmxWeightGradient<Value>::AmxWeightGradient(const ConvSpec& spec, const WeightTile& tile, int threads)
    : shape_(forward_shape(spec)),
      image_(shape_, window_of(shape_)),
      groups_(spec.groups),
      x_size_(kLanes * spec.input.elements()),
      dy_size_(kLanes * spec.convolved().elements()),
      tile_(lanes::amx_kernels().gradient[tile.index]),
      threads_(threads),
      chunk_depth_(has_chunks() ? kAmxRows * tile_.taps : image_.depth()) {
  const auto elements = [&](int rows) { return kAmxParts<Value> * (image_pair(rows) + gradient_pair(rows)); };
  while (piece_rows_ < shape_.out_h && elements(piece_rows_ + 1) <= kAmxPiece) ++piece_rows_;
  // Pieces of equal size.
  piece_rows_ = static_cast<int>(tile_count(shape_.out_h, tile_count(shape_.out_h, piece_rows_)));
  if (piece_rows_ == shape_.out_h) {
    most_pairs_ = static_cast<int>(std::clamp<std::int64_t>(kAmxPiece / elements(piece_rows_), 1, kAmxMostPairs));
  }
}

template <class Value>
int AmxWeightGradient<Value>::channel_tiles() const {
  return static_cast<int>(round_up(tile_count(shape_.out_channels, kAmxRows), tile_.channels));
}
// With memory for the last tiles of the last window, whose sums are not used.
template <class Value>
std::int64_t AmxWeightGradient<Value>::image_pair(int results) const {
  const std::int64_t beyond = std::int64_t{tap_tiles()} * kAmxRows - row_taps();
  return std::int64_t{image_.rows(results)} * image_.columns() * position() + kLanes * beyond;
}
template <class Value>
std::int64_t AmxWeightGradient<Value>::gradient_pair(int results) const {
  return std::int64_t{channel_tiles()} * results * shape_.out_w * kAmxTile;
}
// The places in memory: the sums of all groups, then the images of a piece, of each part, then its gradients.
template <class Value>
std::int64_t AmxWeightGradient<Value>::memory_elements() const {
  return groups_ * sums_group() + kAmxParts<Value> * (images() + gradients());
}

// [pairs of blocks][rows][columns][depth] vectors of the 16 samples of one block and those of the next, or zeros.
template <class Value>
void AmxWeightGradient<Value>::copy_image(const Part& part, const GradientBlocks& blocks) const {
  const int results = part.end - part.begin;
  const AmxImage::Range columns = image_.inner_columns();
  const std::int64_t row_size = image_.columns() * position();
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_)
  for (std::int64_t pair = 0; pair < tile_count(blocks.count, 2); ++pair) {
    for (int row = 0; row < image_.rows(results); ++row) {
      float* to = blocks.memory + groups_ * sums_group() + pair * image_pair(results) + row * row_size;
      for (int half = 0; half < kAmxParts<Value>; ++half) {
        float* of_part = to + half * images();
        std::fill_n(of_part, columns.begin * position(), 0.0F);
        std::fill(of_part + columns.end * position(), of_part + row_size, 0.0F);
      }
      copy_row(part, blocks.count, pair, row, to);
    }
  }
}

template <class Value>
void AmxWeightGradient<Value>::copy_row(const Part& part, std::int64_t blocks, std::int64_t pair, int row,
                                        float* to) const {
  const lanes::AmxKernels& kernels = lanes::amx_kernels();
  const AmxImage::Range columns = image_.inner_columns();
  const std::int64_t gap = kLanes * image_.column_gap();
  const Value* x = part.x + 2 * pair * x_size_;
  const bool both = 2 * pair + 1 < blocks;
  for (int column = columns.begin; column < columns.end; column += kAmxCopiedColumns) {
    const int count = std::min(kAmxCopiedColumns, columns.end - column);
    for (int index = 0; index < image_.depth(); ++index) {
      const Value* plane = image_.plane(x, part.begin, row, index);
      const Value* first = plane == nullptr ? nullptr : plane + (column - columns.begin) * gap;
      const Value* second = first == nullptr || !both ? nullptr : first + x_size_;
      float* vectors = to + column * position() + kLanes * index;
      if constexpr (std::is_same_v<Value, Bf16>) {
        kernels.join_samples(bits_of(first), bits_of(second), count, gap, vectors, position());
      } else {
        kernels.split_samples(first, second, count, gap, vectors, position(), vectors + images());
      }
    }
  }
}

// [pairs of blocks][tiles of output channels][positions] tiles of 8 pairs of samples of one block and 8 of the next.
template <class Value>
void AmxWeightGradient<Value>::copy_gradient(const Part& part, const GradientBlocks& blocks) const {
  const lanes::AmxKernels& kernels = lanes::amx_kernels();
  const int results = part.end - part.begin;
  const std::int64_t positions = std::int64_t{results} * shape_.out_w;
  const std::int64_t plane = kLanes * shape_.out_plane;
  const auto tiles = static_cast<int>(tile_count(shape_.out_channels, kAmxRows));
  float* all = blocks.memory + groups_ * sums_group() + kAmxParts<Value> * images();
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_)
  for (int tile = 0; tile < tiles; ++tile) {
    for (std::int64_t b = 0; b < round_up(blocks.count, 2); ++b) {
      float* to = all + b / 2 * gradient_pair(results) + tile * positions * kAmxTile + b % 2 * (kAmxTile / 2);
      if (b == blocks.count) {
        for (int half = 0; half < kAmxParts<Value>; ++half) {
          for (std::int64_t i = 0; i < positions; ++i) {
            std::fill_n(to + half * gradients() + i * kAmxTile, kAmxTile / 2, 0.0F);
          }
        }
        continue;
      }
      const Value* dy =
          part.dy + b * dy_size_ + tile * kAmxRows * plane + kLanes * std::int64_t{part.begin} * shape_.out_w;
      const int channels = std::min(kAmxRows, shape_.out_channels - tile * kAmxRows);
      if constexpr (std::is_same_v<Value, Bf16>) {
        kernels.transpose_gradient(&dy->bits, plane, channels, positions, to, kAmxTile);
      } else {
        kernels.split_gradient(dy, plane, channels, positions, to, kAmxTile, to + gradients());
      }
    }
  }
}

// `images`: of the part, the gradients follow. `sums`: of the group.
template <class Value>
void AmxWeightGradient<Value>::multiply(const Part& part, std::int64_t count, const float* images, float* sums) const {
  const int results = part.end - part.begin;
  const float* gradient = images + kAmxParts<Value> * this->images();
  const std::int64_t image_row = image_.columns() * position();
  lanes::AmxGradient task{.taps = row_taps(),
                          .pairs = static_cast<int>(tile_count(count, 2)),
                          .out_h = results,
                          .out_w = shape_.out_w,
                          .image = nullptr,
                          .image_block = image_pair(results),
                          .row_step = image_.row_stride() * image_row,
                          .column_step = image_.column_stride() * position(),
                          .gradient = nullptr,
                          .gradient_block = gradient_pair(results),
                          .gradient_tiles = std::int64_t{results} * shape_.out_w * kAmxTile,
                          .sums = nullptr,
                          .accumulate = part.accumulate};
  const bool once = !part.accumulate && part.dw != nullptr;  // chunks of a thread take turns in the same memory
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_) firstprivate(task)
  for (int channel = 0; channel < channel_tiles(); channel += tile_.channels) {
    for (int chunk = 0; chunk < chunks(); ++chunk) {
      const int place = once ? omp_get_thread_num() : channel / tile_.channels * chunks() + chunk;
      float* const chunk_begin = sums + place * chunk_sums();
      task.sums = chunk_begin;
      for (int r = 0; r < image_.window_rows(); ++r) {
        const int tiles = tile_.window * tile_.taps;
        for (int tile = 0; tile < chunk_tiles(); tile += tiles, task.sums += tiles * tile_.channels * kAmxTile) {
          const int tap = has_chunks() ? (tile / tile_.taps * image_.depth() + chunk * chunk_depth_) / kAmxRows : tile;
          for (std::size_t product = 0; product < kAmxProducts<Value>; ++product) {
            task.image = images + kAmxImageParts.at(product) * this->images() + r * image_row;
            task.gradient = gradient + kAmxOtherParts.at(product) * gradients();
            task.accumulate = part.accumulate || product > 0;
            tile_.kernel(task, tap, channel);
          }
        }
      }
      if (part.dw == nullptr) continue;
      for (int i = 0; i < tile_.channels; ++i) {
        finish_tile(chunk_begin + i * kAmxTile, chunk * chunk_depth_, (channel + i) * kAmxRows, part.dw);
      }
    }
  }
}

template <class Value>
void AmxWeightGradient<Value>::add(ConstActivations x, ConstActivations dpre, const GradientBlocks& blocks) const {
  const std::int64_t group_weights =
      std::int64_t{shape_.out_channels} * shape_.in_channels * shape_.kernel_h * shape_.kernel_w;
  for (std::int64_t g = 0; g < groups_; ++g) {
    for (int begin = 0; begin < shape_.out_h; begin += piece_rows_) {
      const int end = std::min(begin + piece_rows_, shape_.out_h);
      const bool last = blocks.is_last && end == shape_.out_h;
      const Part part{.x = values<Value>(x) + g * (x_size_ / groups_),
                      .dy = values<Value>(dpre) + g * (dy_size_ / groups_),
                      .begin = begin,
                      .end = end,
                      .accumulate = !blocks.is_first || begin > 0,
                      .dw = last ? blocks.dw + g * group_weights : nullptr};
      copy_image(part, blocks);
      copy_gradient(part, blocks);
      multiply(part, blocks.count, blocks.memory + groups_ * sums_group(), blocks.memory + g * sums_group());
    }
  }
}

// The weights of up to 16 output channels from `channel` on, and of a chunk's values of a column from `first` on, from a chunk's
// sums. Some values at a time, so that what is written, a window apart, stays in the first-level cache.
template <class Value>
void AmxWeightGradient<Value>::finish_tile(const float* sums, int first, int channel, float* dw) const {
  const std::int64_t weights = std::int64_t{shape_.in_channels} * shape_.kernel_h * shape_.kernel_w;
  const int channels = std::min(kAmxRows, shape_.out_channels - channel);
  // From a value of a column to the next: to the next row of the window, or to the next channel.
  const std::int64_t step = weights / image_.depth();
  dw += channel * weights + first * step;
  for (int begin = 0; begin < chunk_depth_; begin += kAmxRows) {
    const int end = std::min(chunk_depth_, begin + kAmxRows);
    for (int r = 0; r < image_.window_rows(); ++r) {
      for (int s = 0; s < shape_.kernel_w; ++s) {
        for (int i = begin; i < end;) {
          const int tap = s * chunk_depth_ + i;
          const int count = std::min(end - i, kAmxRows - tap % kAmxRows);
          const float* from = sums + (std::int64_t{r} * chunk_tiles() + tap / kAmxRows) * tile_.channels * kAmxTile +
                              tap % kAmxRows * kLanes;
          float* to = dw + i * step + r * shape_.kernel_w + s;
          for (int o = 0; o < channels; ++o, to += weights) {
            __builtin_prefetch(dw + o * weights + (begin + kAmxRows) * step + kAmxRows * (r * shape_.kernel_w + s), 1);
            for (int k = 0; k < count; ++k) to[k * step] = from[k * kLanes + o];
          }
          i += count;
        }
      }
    }
  }
}

template class AmxWeightGradient<Bf16>;
template class AmxWeightGradient<float>;

}  // namespace ddp
