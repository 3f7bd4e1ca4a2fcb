#include "backend/cpu/conv/amx/amx_conv.h"

#include <omp.h>

#include <algorithm>

namespace ddp {
namespace {

using lanes::ConvShape;

// Floats of an image, so that it stays in the second-level cache with the weights; and of the images of several blocks, which share
// weights that do not stay there.
constexpr std::int64_t kAmxBand = 128 * 1024;
constexpr std::int64_t kAmxImages = 320 * 1024;
constexpr std::int64_t kAmxLargeWeights = 192 * 1024;

AmxWindow window_of(const ConvShape& s, int products) {
  return amx_window(s, [&](int depth) {
    return tile_count(std::int64_t{s.kernel_w} * products * ((depth + 1) / 2), lanes::kAmxRows);
  });
}

}  // namespace

template <class Value>
AmxConv<Value>::AmxConv(const ConvShape& shape, const lanes::AmxForwardTile& tile, lanes::Epilogue last,
                        const Extent& extent)
    : shape_(shape),
      image_(shape, window_of(shape, kAmxProducts<Value>)),
      tile_(tile),
      weights_(shape, image_, tile.channels),
      last_(last),
      extent_(extent) {}

// With zeros for the last tile of the last window.
template <class Value>
std::int64_t AmxConv<Value>::image_elements(int results) const {
  const std::int64_t beyond =
      std::int64_t{weights_.steps()} * lanes::kAmxRows - std::int64_t{shape_.kernel_w} * weights_.vectors();
  return image_.rows(results) * image_.columns() * position() + kLanes * beyond;
}

// Even, so that pooling windows are not split.
template <class Value>
int AmxConv<Value>::band_rows() const {
  int rows = 2;
  while (rows < shape_.out_h && image_elements(rows + 2) <= kAmxBand) rows += 2;
  return std::min(rows, shape_.out_h);
}

template <class Value>
std::int64_t AmxConv<Value>::blocks_at_once() const {
  if (weights_.group_elements() < kAmxLargeWeights) return 1;
  return std::max<std::int64_t>(1, kAmxImages / image_elements(band_rows()));
}

template <class Value>
std::int64_t AmxConv<Value>::scratch_elements() const {
  return has_taps() ? blocks_at_once() * image_elements(band_rows()) : 0;
}

// [rows][columns][products][pairs] vectors.
template <class Value>
void AmxConv<Value>::copy_image(const Value* x, const Part& part, float* image) const {
  const lanes::AmxKernels& kernels = lanes::amx_kernels();
  const int results = part.end - part.begin;
  const AmxImage::Range columns = image_.inner_columns();
  const std::int64_t row_size = image_.columns() * position();
  const std::int64_t gap = kLanes * image_.column_gap();
  for (int row = 0; row < image_.rows(results); ++row) {
    float* to = image + row * row_size;
    std::fill_n(to, columns.begin * position(), 0.0F);
    std::fill(to + columns.end * position(), to + row_size, 0.0F);
    for (int first = columns.begin; first < columns.end; first += kAmxCopiedColumns) {
      const int count = std::min(kAmxCopiedColumns, columns.end - first);
      const std::int64_t from = (first - columns.begin) * gap;
      for (int pair = 0; pair < weights_.pairs(); ++pair) {
        const auto at = [&](int index) {
          const Value* plane = image_.plane(x, part.begin, row, index);
          return plane == nullptr ? nullptr : plane + from;
        };
        const Value* lower = at(2 * pair);
        const Value* upper = at(2 * pair + 1);
        float* pairs = to + first * position() + kLanes * pair;
        if constexpr (std::is_same_v<Value, Bf16>) {
          kernels.pair_positions(bits_of(lower), bits_of(upper), count, gap, pairs, position());
        } else {
          kernels.split_positions(lower, upper, count, gap, pairs, position(), kLanes * weights_.pairs());
        }
      }
    }
  }
  std::fill(image + image_.rows(results) * row_size, image + image_elements(results), 0.0F);
}

template <class Value>
lanes::AmxForward AmxConv<Value>::kernel_task(const ConvBlocks& blocks, const Part& part, int channel) const {
  const AmxImage::Range rows = image_.inner_rows(part.begin, part.end - part.begin);
  const AmxImage::Range columns = image_.inner_columns();
  const std::int64_t image_row = image_.columns() * position();
  lanes::AmxForward task{};
  task.kernel_h = has_taps() ? image_.window_rows() : 0;
  task.steps = weights_.steps();
  task.image_row = image_row;
  task.row_step = image_.row_stride() * image_row;
  task.column_step = image_.column_stride() * position();
  task.weights =
      blocks.packed + part.group * weights_.group_elements() + channel / tile_.channels * weights_.tile_elements();
  task.out_h = part.end - part.begin;
  task.out_w = shape_.out_w;
  task.first_row = rows.begin;
  task.last_row = rows.end;
  task.stride = image_.row_stride();
  task.first_value = columns.begin * position();
  task.last_value = columns.end * position();
  task.out_plane = shape_.out_plane;
  task.out_row = shape_.out_row;
  task.out_step = shape_.out_step;
  if (blocks.bias != nullptr) task.bias = blocks.bias + part.group * shape_.out_channels + channel;
  if (last_ == lanes::Epilogue::relu_pool) {
    task.out_row = shape_.out_w / 2;
    task.out_plane = shape_.out_h / 2 * task.out_row;
  }
  return task;
}

// The weights of a tile of channels are used for all blocks before the next if there are several, otherwise each of all channels.
template <class Value>
void AmxConv<Value>::run_part(const Value* x, Value* y, const ConvBlocks& blocks, const Part& part,
                              float* images) const {
  const std::int64_t image_size = image_elements(part.end - part.begin);
  const std::int64_t x_begin = part.group * (extent_.x_size / extent_.groups);
  const bool pooled = last_ == lanes::Epilogue::relu_pool;
  const std::int64_t y_row = kLanes * (pooled ? shape_.out_w / 2 : shape_.out_row);
  const std::int64_t y_begin =
      part.group * (extent_.y_size / extent_.groups) + (pooled ? part.begin / 2 : part.begin) * y_row;
  for (std::int64_t b = 0; b < part.count && has_taps(); ++b) {
    copy_image(x + (part.block + b) * extent_.x_size + x_begin, part, images + b * image_size);
  }
  const int together = part.count > 1 ? tile_.channels : shape_.out_channels;
  for (int channel = 0; channel < shape_.out_channels; channel += together) {
    lanes::AmxForward task = kernel_task(blocks, part, channel);
    task.out_channels = std::min(together, shape_.out_channels - channel);
    for (std::int64_t b = 0; b < part.count; ++b) {
      const std::int64_t at = (part.block + b) * extent_.y_size + y_begin + kLanes * channel * task.out_plane;
      task.image = images + b * image_size;
      task.y = y + at;
      // There are four 16-bit masks for 16 results.
      task.mask = blocks.mask == nullptr ? nullptr : blocks.mask + at / 4;
      (std::is_same_v<Value, Bf16> ? tile_.kernel : tile_.fp32)[static_cast<int>(last_)](task);
    }
  }
}

template <class Value>
void AmxConv<Value>::run(const Value* x, Value* y, const ConvBlocks& blocks) const {
  const int rows = band_rows();
  const auto bands = static_cast<int>(tile_count(shape_.out_h, rows));
  const std::int64_t units = extent_.groups * bands;
  // As many as leave work for each thread.
  const std::int64_t most = std::max<std::int64_t>(1, blocks.count * units / extent_.threads);
  const std::int64_t together = std::min(blocks_at_once(), most);
#pragma omp parallel for collapse(3) schedule(static) num_threads(extent_.threads)
  for (std::int64_t b = 0; b < blocks.count; b += together) {
    for (std::int64_t g = 0; g < extent_.groups; ++g) {
      for (int band = 0; band < bands; ++band) {
        run_part(x, y, blocks,
                 {.group = g,
                  .block = b,
                  .count = std::min(together, blocks.count - b),
                  .begin = band * rows,
                  .end = std::min((band + 1) * rows, shape_.out_h)},
                 blocks.scratch + omp_get_thread_num() * blocks.scratch_size);
      }
    }
  }
}

template class AmxConv<Bf16>;
template class AmxConv<float>;

}  // namespace ddp
