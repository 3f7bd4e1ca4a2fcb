#include "backend/cpu/lanes_amx.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "backend/arithmetic.h"

namespace ddp {
namespace {

using lanes::ConvShape;
using lanes::kAmxRows;
using lanes::kAmxTile;

// Of an image, so that it stays in the second-level cache with the weights, in floats.
constexpr std::int64_t kAmxBand = 128 * 1024;
// Of an image and a gradient whose products are summed together, likewise, and the most pairs of blocks that make them up.
// They determine the order of additions, so they must not depend on the number of threads.
constexpr std::int64_t kAmxPiece = 256 * 1024;
constexpr std::int64_t kAmxMostPairs = 4;

constexpr std::int64_t tile_count(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

// The parts of values, and the products of parts.
template <class Value>
constexpr int kParts = std::is_same_v<Value, Bf16> ? 1 : 2;
template <class Value>
constexpr int kProducts = std::is_same_v<Value, Bf16> ? 1 : 3;
// Of which part of the image, and of the weights or the gradient, the products are.
constexpr std::array kImageParts = {0, 1, 0};
constexpr std::array kOtherParts = {0, 0, 1};

// The weights of a step of one tile of channels, to be rounded.
struct StepWeights {
  std::array<std::array<float, kLanes>, lanes::kAmxMostChannels> lower, upper;
};

// Positions that are copied of all channels before the next, so that all of them stay in the first-level cache.
constexpr int kCopiedColumns = 8;

}  // namespace

AmxImage::AmxImage(const ConvShape& s)
    : in_h(s.in_h),
      in_w(s.in_w),
      pad_top(s.pad_top),
      pad_left(s.pad_left),
      kernel_h(s.kernel_h),
      row_gap(s.kernel_h == 1 ? s.stride : 1),
      column_gap(s.kernel_w == 1 ? s.stride : 1),
      row_stride(s.stride / row_gap),
      column_stride(s.stride / column_gap),
      columns((s.out_w - 1) * column_stride + s.kernel_w) {}

AmxImage::Range AmxImage::inner_rows(int first, int results) const {
  Range range{0, 0};
  while (range.begin < rows(results) && plane_row(first, range.begin) < 0) ++range.begin;
  range.end = range.begin;
  while (range.end < rows(results) && plane_row(first, range.end) < in_h) ++range.end;
  return range;
}

AmxImage::Range AmxImage::inner_columns() const {
  Range range{0, 0};
  while (range.begin < columns && plane_column(range.begin) < 0) ++range.begin;
  range.end = range.begin;
  while (range.end < columns && plane_column(range.end) < in_w) ++range.end;
  return range;
}

// ---- forward and data gradient

template <class Value>
AmxConv<Value>::AmxConv(const ConvShape& shape, const lanes::AmxForwardTile& tile, lanes::Epilogue last,
                        const Extent& extent)
    : shape_(shape), image_(shape), tile_(tile), last_(last), extent_(extent) {}

template <class Value>
int AmxConv<Value>::vectors() const {
  return kProducts<Value> * pairs();
}

template <class Value>
int AmxConv<Value>::steps() const {
  return static_cast<int>(tile_count(std::int64_t{shape_.kernel_w} * vectors(), kAmxRows));
}

template <class Value>
std::int64_t AmxConv<Value>::packed_group() const {
  return std::int64_t{channel_tiles()} * shape_.kernel_h * steps() * (tile_.channels / kAmxRows) * kAmxTile;
}
template <class Value>
std::int64_t AmxConv<Value>::packed_elements() const {
  return extent_.groups * packed_group();
}

// With zeros for the last tile of the last window.
template <class Value>
std::int64_t AmxConv<Value>::image_elements(int results) const {
  const std::int64_t beyond = std::int64_t{steps()} * kAmxRows - std::int64_t{shape_.kernel_w} * vectors();
  return kLanes * (std::int64_t{image_.rows(results)} * image_.columns * vectors() + beyond);
}

// Even, so that pooling windows are not split.
template <class Value>
int AmxConv<Value>::band_rows() const {
  int rows = 2;
  while (rows < shape_.out_h && image_elements(rows + 2) <= kAmxBand) rows += 2;
  return rows;
}

template <class Value>
std::int64_t AmxConv<Value>::scratch_elements() const {
  return has_taps() ? image_elements(std::min(band_rows(), shape_.out_h)) : 0;
}

// Steps of the same channels one after the other, since their weights lie together.
template <class Value>
void AmxConv<Value>::pack(const Weights& weights, float* packed) const {
  const std::int64_t step_size = tile_.channels / kAmxRows * kAmxTile;
  const int apart = vectors() % kAmxRows == 0 ? vectors() / kAmxRows : steps();
#pragma omp parallel for collapse(2) schedule(static) num_threads(extent_.threads)
  for (std::int64_t g = 0; g < extent_.groups; ++g) {
    for (int t = 0; t < channel_tiles(); ++t) {
      float* tiles = packed + g * packed_group() + t * shape_.kernel_h * steps() * step_size;
      for (int first = 0; first < apart; ++first) {
        for (int r = 0; r < shape_.kernel_h; ++r) {
          for (int step = first; step < steps(); step += apart) {
            pack_step(weights, weights.values + g * weights.group + weights.first + r * weights.row, step,
                      t * tile_.channels, tiles + (std::int64_t{r} * steps() + step) * step_size);
          }
        }
      }
    }
  }
}

// The tiles of a step of a row of the window, whose first weights are at `row`, of the output channels from `channel` on.
template <class Value>
void AmxConv<Value>::pack_step(const Weights& weights, const float* row, int step, int channel, float* to) const {
  const lanes::AmxKernels& kernels = lanes::amx_kernels();
  const int channels = std::min(tile_.channels, shape_.out_channels - channel);
  StepWeights values;
  std::uint32_t rests = 0;
  for (std::size_t k = 0; k < kLanes; ++k) {
    const int vector = step * kAmxRows + static_cast<int>(k);
    const int column = vector / vectors();
    if (kOtherParts.at(static_cast<std::size_t>(vector % vectors() / pairs())) == 1) rests |= 1U << k;
    const int in = 2 * (vector % pairs());
    const bool exists = column < shape_.kernel_w;
    const bool both = exists && in + 1 < shape_.in_channels;
    const float* from = row + channel * weights.out + column * weights.column + in * weights.in;
    for (std::size_t o = 0; o < static_cast<std::size_t>(channels); ++o, from += weights.out) {
      values.lower[o][k] = exists ? *from : 0.0F;
      values.upper[o][k] = both ? from[weights.in] : 0.0F;
    }
  }
  for (std::size_t o = 0; o < static_cast<std::size_t>(channels); ++o, to += kAmxRows) {
    kernels.round_pairs(values.lower[o].data(), values.upper[o].data(), rests, to);
  }
  std::fill_n(to, (tile_.channels - channels) * kAmxRows, 0.0F);
}

// [rows][columns][products][pairs of channels] vectors.
template <class Value>
void AmxConv<Value>::copy_image(const Value* x, const Part& part, float* image) const {
  const lanes::AmxKernels& kernels = lanes::amx_kernels();
  const int results = part.end - part.begin;
  const AmxImage::Range rows = image_.inner_rows(part.begin, results);
  const AmxImage::Range columns = image_.inner_columns();
  const std::int64_t position = kLanes * vectors();
  const std::int64_t row_size = image_.columns * position;
  const std::int64_t plane = kLanes * std::int64_t{shape_.in_h} * shape_.in_w;
  for (int row = 0; row < image_.rows(results); ++row) {
    float* to = image + row * row_size;
    if (row < rows.begin || row >= rows.end) {
      std::fill_n(to, row_size, 0.0F);
      continue;
    }
    std::fill_n(to, columns.begin * position, 0.0F);
    std::fill(to + columns.end * position, to + row_size, 0.0F);
    const Value* from = x + kLanes * (std::int64_t{image_.plane_row(part.begin, row)} * shape_.in_w +
                                      image_.plane_column(columns.begin));
    const std::int64_t gap = kLanes * image_.column_gap;
    for (int first = columns.begin; first < columns.end; first += kCopiedColumns, from += kCopiedColumns * gap) {
      const int count = std::min(kCopiedColumns, columns.end - first);
      for (int pair = 0; pair < pairs(); ++pair) {
        const Value* lower = from + 2 * pair * plane;
        const Value* upper = 2 * pair + 1 < shape_.in_channels ? lower + plane : nullptr;
        float* at = to + first * position + kLanes * pair;
        if constexpr (std::is_same_v<Value, Bf16>) {
          kernels.pair_positions(&lower->bits, upper == nullptr ? nullptr : &upper->bits, count, gap, at, position);
        } else {
          kernels.split_positions(lower, upper, count, gap, at, position, kLanes * pairs());
        }
      }
    }
  }
  std::fill(image + image_.rows(results) * row_size, image + image_elements(results), 0.0F);
}

template <class Value>
void AmxConv<Value>::run_band(const Value* x, Value* y, const Blocks& blocks, const Part& part, float* image) const {
  if (has_taps()) copy_image(x, part, image);
  const AmxImage::Range rows = image_.inner_rows(part.begin, part.end - part.begin);
  const AmxImage::Range columns = image_.inner_columns();
  const std::int64_t position = kLanes * vectors();
  const std::int64_t image_row = image_.columns * position;
  lanes::AmxForward task{.kernel_h = has_taps() ? shape_.kernel_h : 0,
                         .steps = steps(),
                         .image = image,
                         .image_row = image_row,
                         .row_step = image_.row_stride * image_row,
                         .column_step = image_.column_stride * position,
                         .weights = blocks.packed + part.group * packed_group(),
                         .bias = blocks.bias == nullptr ? nullptr : blocks.bias + part.group * shape_.out_channels,
                         .out_channels = shape_.out_channels,
                         .out_h = part.end - part.begin,
                         .out_w = shape_.out_w,
                         .first_row = rows.begin,
                         .last_row = rows.end,
                         .stride = image_.row_stride,
                         .first_value = columns.begin * position,
                         .last_value = columns.end * position,
                         .out_plane = shape_.out_plane,
                         .out_row = shape_.out_row,
                         .out_step = shape_.out_step,
                         .y = y,
                         .mask = part.mask};
  if (last_ == lanes::Epilogue::relu_pool) {
    task.out_row = shape_.out_w / 2;
    task.out_plane = shape_.out_h / 2 * task.out_row;
  }
  (std::is_same_v<Value, Bf16> ? tile_.kernel : tile_.fp32)[static_cast<int>(last_)](task);
}

template <class Value>
void AmxConv<Value>::run(const Value* x, Value* y, const Blocks& blocks) const {
  const int rows = band_rows();
  const auto bands = static_cast<int>(tile_count(shape_.out_h, rows));
  const bool pooled = last_ == lanes::Epilogue::relu_pool;
  const std::int64_t out_row = kLanes * (pooled ? shape_.out_w / 2 : shape_.out_row);
#pragma omp parallel for collapse(3) schedule(static) num_threads(extent_.threads)
  for (std::int64_t b = 0; b < blocks.count; ++b) {
    for (std::int64_t g = 0; g < extent_.groups; ++g) {
      for (int band = 0; band < bands; ++band) {
        const int begin = band * rows;
        const std::int64_t at =
            b * blocks.y_size + g * (blocks.y_size / extent_.groups) + (pooled ? begin / 2 : begin) * out_row;
        // There are four 16-bit masks for 16 results.
        const Part part{g, begin, std::min(begin + rows, shape_.out_h),
                        blocks.mask == nullptr ? nullptr : blocks.mask + at / 4};
        run_band(x + b * blocks.x_size + g * (blocks.x_size / extent_.groups), y + at, blocks, part,
                 blocks.scratch + omp_get_thread_num() * blocks.scratch_size);
      }
    }
  }
}

// ---- weight gradient

template <class Value>
AmxWeightGradient<Value>::AmxWeightGradient(const ConvShape& shape, std::int64_t groups,
                                            const lanes::AmxGradientTile& tile, int threads)
    : shape_(shape), image_(shape), groups_(groups), tile_(tile), threads_(threads) {
  const auto elements = [&](int rows) { return kParts<Value> * (image_pair(rows) + gradient_pair(rows)); };
  while (piece_rows_ < shape.out_h && elements(piece_rows_ + 1) <= kAmxPiece) ++piece_rows_;
  if (piece_rows_ == shape.out_h) {
    most_pairs_ = static_cast<int>(std::clamp<std::int64_t>(kAmxPiece / elements(piece_rows_), 1, kAmxMostPairs));
  }
}

template <class Value>
int AmxWeightGradient<Value>::tap_tiles() const {
  return static_cast<int>(
      round_up(tile_count(std::int64_t{shape_.kernel_w} * shape_.in_channels, kAmxRows), tile_.taps));
}
template <class Value>
int AmxWeightGradient<Value>::channel_tiles() const {
  return static_cast<int>(round_up(tile_count(shape_.out_channels, kAmxRows), tile_.channels));
}
template <class Value>
std::int64_t AmxWeightGradient<Value>::sums_group() const {
  return std::int64_t{shape_.kernel_h} * tap_tiles() * channel_tiles() * kAmxTile;
}
// With memory for the last tiles of the last window, whose sums are not used.
template <class Value>
std::int64_t AmxWeightGradient<Value>::image_pair(int results) const {
  const std::int64_t beyond = std::int64_t{tap_tiles()} * kAmxRows - std::int64_t{shape_.kernel_w} * shape_.in_channels;
  return kLanes * (std::int64_t{image_.rows(results)} * image_.columns * shape_.in_channels + beyond);
}
template <class Value>
std::int64_t AmxWeightGradient<Value>::gradient_pair(int results) const {
  return std::int64_t{channel_tiles()} * results * shape_.out_w * kAmxTile;
}
// The places in memory: the sums of all groups, then the images of a piece, of each part, then its gradients.
template <class Value>
std::int64_t AmxWeightGradient<Value>::floats() const {
  return groups_ * sums_group() + kParts<Value> * (images() + gradients());
}

// [pairs of blocks][rows][columns][channels] vectors of the 16 samples of one block and those of the next, or zeros.
template <class Value>
void AmxWeightGradient<Value>::copy_image(const Part& part, const Blocks& blocks, float* memory) const {
  const int results = part.end - part.begin;
  const AmxImage::Range rows = image_.inner_rows(part.begin, results);
  const AmxImage::Range columns = image_.inner_columns();
  const std::int64_t row_size = kLanes * std::int64_t{image_.columns} * shape_.in_channels;
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_)
  for (std::int64_t pair = 0; pair < tile_count(blocks.count, 2); ++pair) {
    for (int row = 0; row < image_.rows(results); ++row) {
      float* to = memory + groups_ * sums_group() + pair * image_pair(results) + row * row_size;
      if (row < rows.begin || row >= rows.end) {
        clear(to, 0, image_.columns);
        continue;
      }
      clear(to, 0, columns.begin);
      const Value* from =
          part.x + 2 * pair * blocks.x_size +
          kLanes * (std::int64_t{image_.plane_row(part.begin, row)} * shape_.in_w + image_.plane_column(columns.begin));
      copy_row(from, 2 * pair + 1 < blocks.count ? from + blocks.x_size : nullptr, columns, to);
      clear(to, columns.end, image_.columns);
    }
  }
}

// The columns [begin, end) of a row of the image, of all parts.
template <class Value>
void AmxWeightGradient<Value>::clear(float* row, int begin, int end) const {
  const std::int64_t position = kLanes * shape_.in_channels;
  for (int part = 0; part < kParts<Value>; ++part) {
    std::fill(row + part * images() + begin * position, row + part * images() + end * position, 0.0F);
  }
}

// `first` and `second` are the values of the first column of two blocks.
template <class Value>
void AmxWeightGradient<Value>::copy_row(const Value* first, const Value* second, const AmxImage::Range& columns,
                                        float* row) const {
  const lanes::AmxKernels& kernels = lanes::amx_kernels();
  const std::int64_t gap = kLanes * image_.column_gap;
  const std::int64_t position = kLanes * shape_.in_channels;
  const std::int64_t plane = kLanes * std::int64_t{shape_.in_h} * shape_.in_w;
  for (int column = columns.begin; column < columns.end; column += kCopiedColumns) {
    const int count = std::min(kCopiedColumns, columns.end - column);
    for (int c = 0; c < shape_.in_channels; ++c) {
      const std::int64_t at = c * plane + (column - columns.begin) * gap;
      float* to = row + column * position + kLanes * c;
      if constexpr (std::is_same_v<Value, Bf16>) {
        kernels.join_samples(&first[at].bits, second == nullptr ? nullptr : &second[at].bits, count, gap, to, position);
      } else {
        kernels.split_samples(first + at, second == nullptr ? nullptr : second + at, count, gap, to, position,
                              to + images());
      }
    }
  }
}

// [pairs of blocks][tiles of output channels][positions] tiles of 8 pairs of samples of one block and 8 of the next.
template <class Value>
void AmxWeightGradient<Value>::copy_gradient(const Part& part, const Blocks& blocks, float* memory) const {
  const lanes::AmxKernels& kernels = lanes::amx_kernels();
  const int results = part.end - part.begin;
  const std::int64_t positions = std::int64_t{results} * shape_.out_w;
  const std::int64_t plane = kLanes * shape_.out_plane;
  const auto tiles = static_cast<int>(tile_count(shape_.out_channels, kAmxRows));
  float* all = memory + groups_ * sums_group() + kParts<Value> * images();
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_)
  for (int tile = 0; tile < tiles; ++tile) {
    for (std::int64_t b = 0; b < round_up(blocks.count, 2); ++b) {
      float* to = all + b / 2 * gradient_pair(results) + tile * positions * kAmxTile + b % 2 * (kAmxTile / 2);
      if (b == blocks.count) {
        for (int half = 0; half < kParts<Value>; ++half) {
          for (std::int64_t i = 0; i < positions; ++i) {
            std::fill_n(to + half * gradients() + i * kAmxTile, kAmxTile / 2, 0.0F);
          }
        }
        continue;
      }
      const Value* dy =
          part.dy + b * blocks.dy_size + tile * kAmxRows * plane + kLanes * std::int64_t{part.begin} * shape_.out_w;
      const int channels = std::min(kAmxRows, shape_.out_channels - tile * kAmxRows);
      if constexpr (std::is_same_v<Value, Bf16>) {
        kernels.transpose_gradient(&dy->bits, plane, channels, positions, to, kAmxTile);
      } else {
        kernels.split_gradient(dy, plane, channels, positions, to, kAmxTile, to + gradients());
      }
    }
  }
}

template <class Value>
void AmxWeightGradient<Value>::multiply(std::int64_t group, const Part& part, const Blocks& blocks, bool accumulate,
                                        float* memory) const {
  const int results = part.end - part.begin;
  const float* image = memory + groups_ * sums_group();
  const float* gradient = image + kParts<Value> * images();
  const std::int64_t position = kLanes * shape_.in_channels;
  const std::int64_t image_row = image_.columns * position;
  const std::int64_t sums_row = channel_tiles() * kAmxTile;
  float* sums = memory + group * sums_group();
#pragma omp parallel for collapse(3) schedule(static) num_threads(threads_)
  for (int r = 0; r < shape_.kernel_h; ++r) {
    for (int channel = 0; channel < channel_tiles(); channel += tile_.channels) {
      for (int tap = 0; tap < tap_tiles(); tap += tile_.taps) {
        for (std::size_t product = 0; product < kProducts<Value>; ++product) {
          tile_.kernel({.taps = shape_.kernel_w * shape_.in_channels,
                        .pairs = static_cast<int>(tile_count(blocks.count, 2)),
                        .out_h = results,
                        .out_w = shape_.out_w,
                        .image = image + kImageParts.at(product) * images() + r * image_row,
                        .image_block = image_pair(results),
                        .row_step = image_.row_stride * image_row,
                        .column_step = image_.column_stride * position,
                        .gradient = gradient + kOtherParts.at(product) * gradients(),
                        .gradient_block = gradient_pair(results),
                        .gradient_tiles = std::int64_t{results} * shape_.out_w * kAmxTile,
                        .sums = sums + r * tap_tiles() * sums_row,
                        .sums_row = sums_row,
                        .accumulate = accumulate || product > 0},
                       tap, channel);
        }
      }
    }
  }
}

template <class Value>
void AmxWeightGradient<Value>::add(const Value* x, const Value* dy, const Blocks& blocks, float* memory) const {
  for (std::int64_t g = 0; g < groups_; ++g) {
    for (int begin = 0; begin < shape_.out_h; begin += piece_rows_) {
      const Part part{x + g * (blocks.x_size / groups_), dy + g * (blocks.dy_size / groups_), begin,
                      std::min(begin + piece_rows_, shape_.out_h)};
      copy_image(part, blocks, memory);
      copy_gradient(part, blocks, memory);
      multiply(g, part, blocks, blocks.accumulate || begin > 0, memory);
    }
  }
}

template <class Value>
void AmxWeightGradient<Value>::finish(float* dw, const float* memory) const {
  const int in = shape_.in_channels;
  const std::int64_t weights = std::int64_t{in} * shape_.kernel_h * shape_.kernel_w;
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_)
  for (std::int64_t g = 0; g < groups_; ++g) {
    for (int first = 0; first < shape_.out_channels; first += kAmxRows) {
      const float* sums = memory + g * sums_group() + first / kAmxRows * kAmxTile;
      float* to = dw + (g * shape_.out_channels + first) * weights;
      const int count = std::min(kAmxRows, shape_.out_channels - first);
      for (int c = 0; c < in; ++c) {
        for (int r = 0; r < shape_.kernel_h; ++r) {
          for (int s = 0; s < shape_.kernel_w; ++s, ++to) {
            const int tap = s * in + c;
            const float* from = sums + (std::int64_t{r} * tap_tiles() + tap / kAmxRows) * channel_tiles() * kAmxTile +
                                tap % kAmxRows * kLanes;
            for (int o = 0; o < count; ++o) to[o * weights] = from[o];
          }
        }
      }
    }
  }
}

template class AmxConv<Bf16>;
template class AmxConv<float>;
template class AmxWeightGradient<Bf16>;
template class AmxWeightGradient<float>;

}  // namespace ddp
