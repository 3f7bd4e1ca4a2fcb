// The copy of an image that convolutions with AMX read (amx_conv.h): the values of a row of the window lie together, column
// by column, so that they fill whole tiles.
//
//   const AmxImage image(forward_shape(spec), AmxWindow::merged_rows);
//   for (int row = 0; row < image.rows(results); ++row) {
//     const Bf16* from = image.plane(x, first, row, index);   // null: zeros
//   }
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "backend/cpu/conv/tiles/conv_kernels.h"
#include "backend/tensor.h"

namespace ddp {

// The parts of values as bf16 numbers, and the products of parts; of which part of the image, and of the weights or the gradient,
// these products are.
template <class Value>
inline constexpr int kAmxParts = std::is_same_v<Value, Bf16> ? 1 : 2;
template <class Value>
inline constexpr int kAmxProducts = std::is_same_v<Value, Bf16> ? 1 : 3;
inline constexpr std::array<int, 3> kAmxImageParts = {0, 1, 0};
inline constexpr std::array<int, 3> kAmxOtherParts = {0, 0, 1};

inline const std::uint16_t* bits_of(const Bf16* values) { return values == nullptr ? nullptr : &values->bits; }
constexpr std::int64_t tile_count(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

// Positions that are copied of all channels before the next, so that all of them stay in the first-level cache.
inline constexpr int kAmxCopiedColumns = 8;

// rows: a column has the values of all channels, and the rows of a window follow one another in the image.
// merged_rows: a column has those of all rows of its window, [channels][rows], so that tiles are full although there are few
// channels; they are copied for each row of results.
enum class AmxWindow { rows, merged_rows };

// Merged if that at least halves the tiles of a window, as copying each row several times takes time too. `tiles`: the number
// for a row of windows that has so many values in a column.
template <class Tiles>
AmxWindow amx_window(const lanes::ConvShape& s, const Tiles& tiles) {
  const bool merges = s.kernel_h > 1 && 2 * tiles(s.in_channels * s.kernel_h) <= s.kernel_h * tiles(s.in_channels);
  return merges ? AmxWindow::merged_rows : AmxWindow::rows;
}

class AmxImage {
 public:
  AmxImage(const lanes::ConvShape& shape, AmxWindow window);

  int columns() const { return columns_; }
  // Rows of a window in a column, values of a column, and rows of a window in the image.
  int merged() const { return merged_; }
  int depth() const { return channels_ * merged_; }
  int window_rows() const { return window_rows_; }
  // Rows of the image for that many rows of results.
  int rows(int results) const { return (results - 1) * row_stride_ + window_rows_; }
  // Rows and columns of the image from a window to the next.
  int row_stride() const { return row_stride_; }
  int column_stride() const { return column_stride_; }
  // Columns of the plane from one of the image to the next, where there are some that no window reads.
  int column_gap() const { return column_gap_; }

  struct Range {
    int begin, end;
  };
  // The columns that are not padding, and of the image for `results` rows of results from `first` on the rows that have others
  // than zeros.
  Range inner_columns() const { return inner_columns_; }
  Range inner_rows(int first, int results) const;
  // The first of the inner columns of a row of that image: what it has at `index` in x, [channels][in_h][in_w] vectors of 16
  // values; null if these are zeros, or beyond the depth.
  template <class Value>
  const Value* plane(const Value* x, int first, int row, int index) const {
    if (index >= depth()) return nullptr;
    const std::int64_t channel = merged_ == 1 ? index : index / merged_;  // divisions take long
    const int from = plane_row(first, row, static_cast<int>(index - channel * merged_));
    if (from < 0 || from >= in_h_) return nullptr;
    return x + kLanes * ((channel * in_h_ + from) * in_w_ + plane_column(inner_columns_.begin));
  }

 private:
  int plane_row(int first, int row, int window_row) const {
    return merged_ > 1 ? (first + row) * stride_ + window_row - pad_top_
                       : (first * row_stride_ + row) * row_gap_ - pad_top_;
  }
  int plane_column(int column) const { return column * column_gap_ - pad_left_; }

  int channels_, in_h_, in_w_, pad_top_, pad_left_, stride_;
  int merged_;
  int window_rows_;
  int row_gap_, column_gap_;
  int row_stride_, column_stride_;
  int columns_;
  Range inner_columns_{0, 0};
};

}  // namespace ddp
