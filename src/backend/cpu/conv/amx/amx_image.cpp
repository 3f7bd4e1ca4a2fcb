#include "backend/cpu/conv/amx/amx_image.h"

namespace ddp {
namespace {

// Those i of [0, count) for which at(i) is in [0, end); at() increases.
template <class At>
AmxImage::Range inner(int count, int end, const At& at) {
  AmxImage::Range range{0, 0};
  while (range.begin < count && at(range.begin) < 0) ++range.begin;
  range.end = range.begin;
  while (range.end < count && at(range.end) < end) ++range.end;
  return range;
}

}  // namespace

AmxImage::AmxImage(const lanes::ConvShape& s, AmxWindow window)
    : channels_(s.in_channels),
      in_h_(s.in_h),
      in_w_(s.in_w),
      pad_top_(s.pad_top),
      pad_left_(s.pad_left),
      stride_(s.stride),
      merged_(window == AmxWindow::merged_rows ? s.kernel_h : 1),
      window_rows_(s.kernel_h / merged_),
      row_gap_(s.kernel_h == 1 ? s.stride : 1),
      column_gap_(s.kernel_w == 1 ? s.stride : 1),
      row_stride_(merged_ > 1 ? 1 : s.stride / row_gap_),
      column_stride_(s.stride / column_gap_),
      columns_((s.out_w - 1) * column_stride_ + s.kernel_w),
      inner_columns_(inner(columns_, in_w_, [this](int column) { return plane_column(column); })) {}

AmxImage::Range AmxImage::inner_rows(int first, int results) const {
  if (merged_ > 1) return {0, rows(results)};
  return inner(rows(results), in_h_, [&](int row) { return plane_row(first, row, 0); });
}

}  // namespace ddp
