#include "backend/cpu/lanes_shapes.h"

#include <algorithm>

namespace ddp {
namespace {

using lanes::ConvShape;

int narrow(std::int64_t value) { return static_cast<int>(value); }

// One dimension of a phase of the data gradient: pixels p, p + s, p + 2s ...
struct Line {
  int pixels;
  int first_tap;
  int taps;
  int pad;  // before, of the convolution over the output's gradient
};

// dx[p + s q] = sum over m of w[a + s m] dy[q + (p + pad - a) / s - m] with a = (p + pad) mod s; m counts down there, and
// up here.
Line line_of(std::int64_t phase, std::int64_t size, std::int64_t kernel, std::int64_t pad, std::int64_t stride) {
  const std::int64_t pixels = (size - phase + stride - 1) / stride;
  const std::int64_t first_tap = (phase + pad) % stride;
  const std::int64_t taps = std::max<std::int64_t>(0, (kernel - first_tap + stride - 1) / stride);
  return {narrow(pixels), narrow(first_tap), narrow(taps), narrow(taps - 1 - (phase + pad - first_tap) / stride)};
}

}  // namespace

ConvShape forward_shape(const ConvSpec& s) {
  const Shape out = s.convolved();
  return {narrow(s.input.channels / s.groups),
          narrow(s.input.height),
          narrow(s.input.width),
          narrow(std::max(s.pad_top, s.pad_bottom)),
          narrow(std::max(s.pad_left, s.pad_right)),
          narrow(s.pad_top),
          narrow(s.pad_left),
          narrow(s.output_channels / s.groups),
          narrow(out.height),
          narrow(out.width),
          narrow(s.kernel_h),
          narrow(s.kernel_w),
          narrow(s.stride),
          out.height * out.width,
          out.width,
          1};
}

std::vector<DataPhase> data_phases(const ConvSpec& s) {
  const Shape out = s.convolved();
  std::vector<DataPhase> phases;
  int border = 0;
  for (std::int64_t y = 0; y < std::min(s.stride, s.input.height); ++y) {
    const Line rows = line_of(y, s.input.height, s.kernel_h, s.pad_top, s.stride);
    for (std::int64_t x = 0; x < std::min(s.stride, s.input.width); ++x) {
      const Line columns = line_of(x, s.input.width, s.kernel_w, s.pad_left, s.stride);
      const int right = columns.pixels + columns.taps - 1 - columns.pad - narrow(out.width);
      if (columns.taps > 0) border = std::max({border, columns.pad, right});
      phases.push_back({{narrow(s.output_channels / s.groups),
                         narrow(out.height),
                         narrow(out.width),
                         0,
                         0,
                         rows.pad,
                         columns.pad,
                         narrow(s.input.channels / s.groups),
                         rows.pixels,
                         columns.pixels,
                         rows.taps,
                         columns.taps,
                         1,
                         s.input.height * s.input.width,
                         s.stride * s.input.width,
                         s.stride},
                        rows.first_tap,
                        columns.first_tap,
                        y * s.input.width + x});
    }
  }
  for (DataPhase& phase : phases) phase.shape.border_w = border;
  return phases;
}

std::int64_t packed_weights(const ConvShape& s, int tile_channels) {
  return round_up(s.out_channels, tile_channels) * s.in_channels * s.kernel_h * s.kernel_w;
}

void pack_forward(const ConvShape& s, const float* w, int tile, float* packed) {
  const std::int64_t taps = std::int64_t{s.in_channels} * s.kernel_h * s.kernel_w;
  for (int first = 0; first < s.out_channels; first += tile) {
    for (int o = 0; o < tile; ++o) {
      const bool real = first + o < s.out_channels;
      for (std::int64_t t = 0; t < taps; ++t) packed[t * tile + o] = real ? w[(first + o) * taps + t] : 0.0F;
    }
    packed += taps * tile;
  }
}

void pack_data(const ConvSpec& spec, const DataPhase& phase, const float* w, int tile, float* packed) {
  const ConvShape& s = phase.shape;
  const std::int64_t kernel = spec.kernel_h * spec.kernel_w;
  for (int first = 0; first < s.out_channels; first += tile) {
    for (int in = 0; in < s.in_channels; ++in) {
      for (int r = s.kernel_h - 1; r >= 0; --r) {
        for (int k = s.kernel_w - 1; k >= 0; --k) {
          const std::int64_t tap =
              (phase.tap_row + r * spec.stride) * spec.kernel_w + phase.tap_column + k * spec.stride;
          for (int o = 0; o < tile; ++o, ++packed) {
            const bool real = first + o < s.out_channels;
            *packed = real ? w[(std::int64_t{in} * s.out_channels + first + o) * kernel + tap] : 0.0F;
          }
        }
      }
    }
  }
}

}  // namespace ddp
