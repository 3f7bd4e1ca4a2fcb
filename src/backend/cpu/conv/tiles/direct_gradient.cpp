#include "backend/cpu/conv/tiles/direct_gradient.h"

#include <omp.h>

#include "backend/cpu/device/values.h"

namespace ddp {
namespace {

using lanes::ConvShape;

// The values of opened gradients, before ReLU and pooling, that stay in the second-level cache of one core.
constexpr std::int64_t kOpened = 192 * 1024;

int tiles_in(int count, int size) { return (count + size - 1) / size; }

}  // namespace

template <class Value>
DirectGradient<Value>::DirectGradient(const ConvSpec& spec, const WeightTile& tile, int threads,
                                      const DirectConv<Value>* data, std::int64_t blocks)
    : spec_(spec),
      shape_(forward_shape(spec)),
      threads_(threads),
      data_(data),
      copies_x_(kElementOf<Value> == Element::fp32 || spec.window.padding.any()),
      exchanged_(kElementOf<Value> == Element::fp32 && of_single_pixels(spec) &&
                 shape_.out_channels < shape_.in_channels),
      pieces_(gradient_pieces(shape_, kElementOf<Value>)),
      x_block_(kLanes * spec.input.elements()),
      x_group_(x_block_ / spec.groups),
      dy_block_(kLanes * spec.convolved().elements()),
      dy_group_(dy_block_ / spec.groups) {
  if (blocks > 0) pieces_.blocks = blocks;
  if (tile.method == WeightTile::Method::direct) {
    direct_ = &lanes::gradient_kernels().weights[tile.index];
  } else {
    outer_ = &outer_tile(tile.index);
    width_ = outer_width(exchanged_ ? exchanged(1, 0) : shape_, *outer_);
  }
}

// The shape of the image if input and output channels are exchanged: so many rows of planes that are `plane` vectors apart.
template <class Value>
ConvShape DirectGradient<Value>::exchanged(int rows, std::int64_t plane) const {
  ConvShape s = shape_;
  std::swap(s.in_channels, s.out_channels);
  s.in_h = s.out_h = rows;
  s.source_gap = static_cast<int>(plane - std::int64_t{rows} * s.in_w);
  return s;
}

template <class Value>
std::int64_t DirectGradient<Value>::images_elements() const {
  const ConvShape whole = outer_ != nullptr && exchanged_ ? exchanged(pieces_.rows, 0) : shape_;
  const Band band = band_of(whole, 0, pieces_.rows, false);
  std::int64_t image = 0;
  if (outer_ != nullptr) {
    image = outer_elements(band, width_, kElementOf<Value>);
  } else if (copies_x_) {
    image = band_elements(band) * static_cast<std::int64_t>(sizeof(Value)) / static_cast<std::int64_t>(sizeof(float));
  }
  return pieces_.blocks * spec_.groups * image;
}

template <class Value>
std::int64_t DirectGradient<Value>::memory_elements() const {
  const std::int64_t both = data_ == nullptr ? 0 : spec_.groups * band_elements(data_->band(0, pieces_.rows));
  return images_elements() + both;
}

// One thread takes no more than stay in its cache: whole pieces, in the same order as several threads.
template <class Value>
std::int64_t DirectGradient<Value>::blocks_together() const {
  std::int64_t together = pieces_.together;
  if (!spec_.relu || threads_ > 1 || together % pieces_.blocks != 0) return together;
  while (together > pieces_.blocks && together * dy_block_ > kOpened) together -= pieces_.blocks;
  return together;
}

// Calls copy(block, group, image) for the images of a piece, `size` elements each, which it returns.
template <class Value>
template <class T, class F>
const T* DirectGradient<Value>::copy_images(const Piece& piece, std::int64_t size, F copy) const {
  T* images = static_cast<T*>(static_cast<void*>(piece.memory));
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_)
  for (std::int64_t b = 0; b < piece.blocks; ++b) {
    for (std::int64_t g = 0; g < spec_.groups; ++g) copy(b, g, images + (b * spec_.groups + g) * size);
  }
  return images;
}

template <class Value>
template <class F>
void DirectGradient<Value>::each_tile(int columns, int rows, F f) const {
#pragma omp parallel for collapse(3) schedule(static) num_threads(threads_)
  for (std::int64_t g = 0; g < spec_.groups; ++g) {
    for (int column = 0; column < columns; ++column) {
      for (int row = 0; row < rows; ++row) f(g, column, row);
    }
  }
}

// The rows of x from `row` on, in place.
template <class Value>
typename DirectGradient<Value>::Rows DirectGradient<Value>::x_rows(const Value* x, const Piece& piece, int row) const {
  return {x + piece.block * x_block_ + kLanes * std::int64_t{row} * shape_.in_w, x_block_, x_group_,
          std::int64_t{shape_.in_h} * shape_.in_w};
}

// The contribution of a piece to the weight gradient.
template <class Value>
void DirectGradient<Value>::add_piece(const Value* x, const Rows& dy, const Piece& piece) const {
  ConvShape shape = shape_;
  shape.out_h = piece.rows();
  Rows in = x_rows(x, piece, piece.begin * shape_.stride);
  if (copies_x_) {
    const Band band = band_of(shape_, piece.begin, piece.end, false);
    const std::int64_t size = band_elements(band);
    const Rows whole = x_rows(x, piece, 0);
    const Value* images = copy_images<Value>(piece, size, [&](std::int64_t b, std::int64_t g, Value* image) {
      copy_band(shape_, band, whole.first + b * whole.block + g * whole.group, image);
    });
    shape = band.shape;
    in = {images, spec_.groups * size, size, 0};
  }
  const auto& kernel = of_values<Value>(direct_->kernel, direct_->pairs);
  const int taps = shape_.in_channels * shape_.kernel_h * shape_.kernel_w;
  each_tile(tiles_in(taps, direct_->taps), tiles_in(shape_.out_channels, direct_->channels),
            [&](std::int64_t g, int column, int row) {
              kernel({shape, raw(in.first + g * in.group), in.block, raw(dy.first + g * dy.group), dy.block, dy.plane,
                      static_cast<int>(piece.blocks), piece.dw + g * group_parameters(), !piece.sets},
                     row, column);
            });
}

// The same with channels in the lanes: those of the input, or those of the output if they are fewer.
template <class Value>
void DirectGradient<Value>::add_outer_piece(const Value* x, const Rows& dy, const Piece& piece) const {
  const ConvShape whole = exchanged_ ? exchanged(piece.rows(), dy.plane) : shape_;
  const Band band = exchanged_ ? band_of(whole, 0, piece.rows(), false) : band_of(whole, piece.begin, piece.end, false);
  const Rows in_lanes = exchanged_ ? dy : x_rows(x, piece, 0);
  const Rows scalars = exchanged_ ? x_rows(x, piece, piece.begin) : dy;
  const std::int64_t size = outer_elements(band, width_, kElementOf<Value>);
  const float* images = copy_images<float>(piece, size, [&](std::int64_t b, std::int64_t g, float* to) {
    copy_band_outer(whole, band, in_lanes.first + b * in_lanes.block + g * in_lanes.group, width_, to);
  });
  const auto& kernel = of_values<Value>(outer_->kernel, outer_->pairs);
  each_tile(outer_vector_tiles(whole, *outer_), tiles_in(whole.out_channels, outer_->rows),
            [&](std::int64_t g, int vector, int row) {
              kernel({band.shape, images + g * size, spec_.groups * size, width_,
                      raw(scalars.first + g * scalars.group), scalars.block, scalars.plane,
                      static_cast<int>(piece.blocks), piece.dw + g * group_parameters(), !piece.sets, exchanged_},
                     row, vector);
            });
}

// rows_of(piece): of the gradient before ReLU and pooling.
template <class Value>
template <class Gradient>
void DirectGradient<Value>::add_pieces(const Value* x, const GradientBlocks& blocks, Gradient rows_of) const {
  for (std::int64_t b = 0; b < blocks.count; b += pieces_.blocks) {
    for (int begin = 0; begin < shape_.out_h; begin += pieces_.rows) {
      const Piece piece{b,
                        std::min(pieces_.blocks, blocks.count - b),
                        begin,
                        std::min(begin + pieces_.rows, shape_.out_h),
                        blocks.is_first && b == 0 && begin == 0,
                        blocks.dw,
                        blocks.memory};
      const Rows dy = rows_of(piece);
      if (outer_ == nullptr) {
        add_piece(x, dy, piece);
      } else {
        add_outer_piece(x, dy, piece);
      }
    }
  }
}

template <class Value>
void DirectGradient<Value>::add(ConstActivations x, ConstActivations dpre, const GradientBlocks& blocks) const {
  const Value* const dy = values<Value>(dpre);
  add_pieces(values<Value>(x), blocks, [&](const Piece& piece) {
    return Rows{dy + piece.block * dy_block_ + kLanes * std::int64_t{piece.begin} * shape_.out_w, dy_block_, dy_group_,
                shape_.out_plane};
  });
}

template <class Value>
void DirectGradient<Value>::add_both(ConstActivations x, ConstActivations dpre, const GradientBlocks& blocks,
                                     Activations dx,
                                     const ConvBlocks& data_blocks) const requires std::is_same_v<Value, float> {
  float* const images = blocks.memory + images_elements();
  add_pieces(x.fp32(), blocks, [&](const Piece& piece) {
    const Band band = data_->band(piece.begin, piece.end);
    const std::int64_t size = band_elements(band);
    for (std::int64_t g = 0; g < spec_.groups; ++g) {
      const typename DirectConv<Value>::Rows rows{piece.block, g, piece.begin, piece.end};
      data_->copy(dpre.fp32(), rows, band, images + g * size);
      data_->compute(rows, band, images + g * size, dx.fp32(), data_blocks);
    }
    return Rows{images, 0, size, band.shape.source_plane() / kLanes};
  });
}

template class DirectGradient<Bf16>;
template class DirectGradient<float>;

}  // namespace ddp
