#include "backend/cpu/conv/tiles/shapes.h"

#include <algorithm>
#include <bit>

#include "backend/cpu/device/values.h"
#include "backend/cpu/isa/instruction_set.h"
#include "backend/cpu/pointwise/elementwise_kernels.h"

LANES_TABLE(ConvKernels, conv_kernels)
LANES_BF16_TABLE(ConvKernels, pair_kernels)
LANES_BF16_TABLE(WinogradProductKernels, product_kernels)
LANES_BF16_TABLE(GradientKernels, gradient_kernels)

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

// dx[p + s q] = sum over m of w[a + s m] dy[q + (p + pad - a) / s - m] with a = (p + pad) mod s; here m runs in the
// opposite direction.
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
          0,
          narrow(std::max(s.window.padding.left, s.window.padding.right)),
          narrow(s.window.padding.top),
          narrow(s.window.padding.left),
          narrow(s.output_channels / s.groups),
          narrow(out.height),
          narrow(out.width),
          narrow(s.window.height),
          narrow(s.window.width),
          narrow(s.window.stride.vertical),
          out.height * out.width,
          out.width,
          1};
}

std::vector<DataPhase> data_phases(const ConvSpec& s) {
  const Shape out = s.convolved();
  std::vector<DataPhase> phases;
  int border = 0;
  for (std::int64_t y = 0; y < std::min(s.window.stride.vertical, s.input.height); ++y) {
    const Line rows = line_of(y, s.input.height, s.window.height, s.window.padding.top, s.window.stride.vertical);
    for (std::int64_t x = 0; x < std::min(s.window.stride.vertical, s.input.width); ++x) {
      const Line columns = line_of(x, s.input.width, s.window.width, s.window.padding.left, s.window.stride.vertical);
      const int right = columns.pixels + columns.taps - 1 - columns.pad - narrow(out.width);
      if (columns.taps > 0) border = std::max({border, columns.pad, right});
      phases.push_back(
          {{narrow(s.output_channels / s.groups), narrow(out.height), narrow(out.width), 0, 0, rows.pad, columns.pad,
            narrow(s.input.channels / s.groups), rows.pixels, columns.pixels, rows.taps, columns.taps, 1,
            s.input.height * s.input.width, s.window.stride.vertical * s.input.width, s.window.stride.vertical},
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

Band band_of(const ConvShape& whole, int begin, int end, bool single_rows) {
  Band band{whole, 0, 1};
  ConvShape& s = band.shape;
  // A 1x1 window skips all other pixels.
  if (s.kernel_h == 1 && s.kernel_w == 1 && s.pad_top == 0 && s.pad_left == 0 && s.border_w == 0) {
    band.step = s.stride;
    s.stride = 1;
    s.in_w = s.out_w;
  }
  const int last_row = (end - 1) * whole.stride - whole.pad_top + whole.kernel_h;
  band.first_row = begin * whole.stride - whole.pad_top;
  s.pad_top = 0;
  int last = last_row;
  if (single_rows) {
    const int first = std::clamp(band.first_row, 0, whole.in_h);
    s.pad_top = first - band.first_row;
    band.first_row = first;
    last = std::clamp(last_row, first, whole.in_h);
  }
  s.in_h = (last - band.first_row + band.step - 1) / band.step;
  s.out_h = end - begin;
  // Channels at distances of whole pages would share a few sets of the first-level cache.
  s.source_gap = s.in_channels > 1 && s.source_h() * s.source_w() % 4 == 0 ? 2 : 0;
  return band;
}

ConvShape all_phases(const std::vector<DataPhase>& phases) {
  ConvShape all = phases.front().shape;  // no other has more results
  // What is read above and left of a result, and from its place on.
  int above = 0;
  int below = 0;
  int left = 0;
  int right = 0;
  for (const DataPhase& phase : phases) {
    const ConvShape& s = phase.shape;
    if (s.kernel_h == 0 || s.kernel_w == 0) continue;
    above = std::max(above, s.pad_top);
    below = std::max(below, s.kernel_h - s.pad_top);
    left = std::max(left, s.pad_left);
    right = std::max(right, s.kernel_w - s.pad_left);
  }
  all.pad_top = above;
  all.pad_left = left;
  all.kernel_h = above + below;
  all.kernel_w = left + right;
  return all;
}

ConvShape shape_in(const Band& band, const DataPhase& phase, int begin, int end) {
  ConvShape s = phase.shape;
  s.in_h = band.shape.in_h;
  s.in_w = band.shape.in_w;
  s.source_gap = band.shape.source_gap;
  s.pad_top += band.first_row - begin;
  s.out_h = std::max(std::min(end, s.out_h) - begin, 0);
  return s;
}

std::int64_t band_elements(const Band& band) { return band.shape.in_channels * band.shape.source_plane(); }

namespace {

// Calls copy(offset in the plane of the image, target, vectors) for the pieces of each row of a channel's band, and
// zero(target, vectors) for its padding. `step` is that of the band.
template <class Copy, class Zero>
void each_row(const ConvShape& whole, const Band& band, Copy copy, Zero zero) {
  const ConvShape& s = band.shape;
  std::int64_t to = 0;
  for (int i = 0; i < s.in_h; ++i, to += s.source_w()) {
    const int row = band.first_row + i * band.step;
    if (row < 0 || row >= whole.in_h) {
      zero(to, s.source_w());
      continue;
    }
    zero(to, s.border_w);
    const std::int64_t from = std::int64_t{row} * whole.in_w;
    if (band.step == 1) {
      copy(from, to + s.border_w, s.in_w);
    } else {
      for (int j = 0; j < s.in_w; ++j) copy(from + std::int64_t{j} * band.step, to + s.border_w + j, 1);
    }
    zero(to + s.border_w + s.in_w, s.border_w);
  }
}

// Values from one channel of an image to the next.
std::int64_t image_plane(const ConvShape& whole) {
  return kLanes * (std::int64_t{whole.in_w} * whole.in_h + whole.source_gap);
}

// Meanwhile asks memory for what is copied next, `next` values further on: into the second-level cache, as the first one has no
// room for it.
template <class Value>
void copy_values(const Value* from, Value* to, std::int64_t count, std::int64_t next) {
  constexpr std::int64_t kCopied = 512 / sizeof(Value);
  constexpr std::int64_t kCacheLine = 64 / sizeof(Value);
  for (std::int64_t at = 0; at < count; at += kCopied) {
    const std::int64_t copied = std::min(kCopied, count - at);
    for (std::int64_t line = 0; line < copied; line += kCacheLine) __builtin_prefetch(from + at + next + line, 0, 2);
    std::copy_n(from + at, copied, to + at);
  }
}

// A null second channel is zero.
void copy_pairs(const Bf16* lower, const Bf16* upper, float* to, std::int64_t count) {
  lanes::elementwise_kernels().pair_bf16(count, &lower->bits, upper == nullptr ? nullptr : &upper->bits, to);
}

template <class Value>
void copy_band_of(const ConvShape& whole, const Band& band, const Value* x, Value* to) {
  const std::int64_t plane = image_plane(whole);
  for (int c = 0; c < band.shape.in_channels; ++c) {
    each_row(
        whole, band,
        [&](std::int64_t from, std::int64_t at, std::int64_t vectors) {
          copy_values(x + kLanes * from, to + kLanes * at, kLanes * vectors, plane);
        },
        [&](std::int64_t at, std::int64_t vectors) { std::fill_n(to + kLanes * at, kLanes * vectors, Value{}); });
    x += plane;
    to += band.shape.source_plane();
  }
}

}  // namespace

void copy_band(const ConvShape& whole, const Band& band, const float* x, float* to) {
  copy_band_of(whole, band, x, to);
}
void copy_band(const ConvShape& whole, const Band& band, const Bf16* x, Bf16* to) { copy_band_of(whole, band, x, to); }

void copy_band(const ConvShape& whole, const Band& band, const Bf16* x, float* to) {
  const std::int64_t plane = image_plane(whole);
  for (int c = 0; c < band.shape.in_channels; c += 2) {
    const Bf16* upper = c + 1 < band.shape.in_channels ? x + plane : nullptr;
    each_row(
        whole, band,
        [&](std::int64_t from, std::int64_t at, std::int64_t vectors) {
          copy_pairs(x + kLanes * from, upper == nullptr ? nullptr : upper + kLanes * from, to + kLanes * at,
                     kLanes * vectors);
        },
        [&](std::int64_t at, std::int64_t vectors) { std::fill_n(to + kLanes * at, kLanes * vectors, 0.0F); });
    x += 2 * plane;
    to += band.shape.source_plane();
  }
}

namespace {

template <class Value>
void copy_outer(const ConvShape& whole, const Band& band, const Value* x, std::int64_t width, float* to) {
  constexpr int kTogether = 8;
  const lanes::GradientKernels& kernels = lanes::gradient_kernels();
  const auto& transpose = of_values<Value>(kernels.transpose_samples, kernels.transpose_pairs);
  const std::int64_t plane = image_plane(whole);
  constexpr std::size_t kPerFloat = bytes_of(Element::fp32) / sizeof(Value);
  const std::int64_t position = kLanes * width / static_cast<std::int64_t>(kPerFloat);
  for (int c = 0; c < width; c += kTogether) {
    const int channels = std::clamp(band.shape.in_channels - c, 0, kTogether);
    const Value* from_channel = x + c * plane;
    each_row(
        whole, band,
        [&](std::int64_t from, std::int64_t at, std::int64_t vectors) {
          transpose(channels == 0 ? nullptr : raw(from_channel + kLanes * from), plane, channels, vectors,
                    to + at * position + c, width);
        },
        [&](std::int64_t at, std::int64_t vectors) {
          if (c == 0) std::fill_n(to + at * position, vectors * position, 0.0F);
        });
  }
}

}  // namespace

void copy_band_outer(const ConvShape& whole, const Band& band, const float* x, std::int64_t width, float* to) {
  copy_outer(whole, band, x, width, to);
}
void copy_band_outer(const ConvShape& whole, const Band& band, const Bf16* x, std::int64_t width, float* to) {
  copy_outer(whole, band, x, width, to);
}
std::int64_t outer_elements(const Band& band, std::int64_t width, Element element) {
  return band.shape.source_plane() * width / (element == Element::bf16 ? 2 : 1);
}

int band_rows(const ConvShape& s) {
  constexpr std::int64_t kBandElements = 128 * 1024;
  int rows = 2;
  while (rows < s.out_h && band_elements(band_of(s, 0, rows + 2, false)) <= kBandElements) rows += 2;
  return rows;
}

GradientPieces gradient_pieces(const ConvShape& s, Element element) {
  // Positions over which a weight gradient is summed before the sums over lanes, which cost about as much as ten positions, or
  // twenty of pairs; and blocks that stay in the cache.
  constexpr std::int64_t kPositions = 196;
  constexpr std::int64_t kMostBlocks = 4;
  const auto rows = static_cast<int>(std::clamp<std::int64_t>(kPositions / s.out_w, 1, s.out_h));
  if (element == Element::fp32) {
    return {rows, std::clamp<std::int64_t>(kPositions / s.out_plane, 1, kMostBlocks), kMostBlocks};
  }
  const auto blocks = std::clamp<std::int64_t>((kPositions + s.out_plane - 1) / s.out_plane, 1, kMostBlocks);
  return {rows, blocks, blocks};
}

WeightPlaces forward_places(const ConvShape& s) {
  const std::int64_t taps = std::int64_t{s.kernel_h} * s.kernel_w;
  return {.group = s.out_channels * s.in_channels * taps,
          .first = 0,
          .out = s.in_channels * taps,
          .in = taps,
          .row = s.kernel_w,
          .column = 1};
}

WeightPlaces data_places(const ConvSpec& spec, const DataPhase& phase) {
  const ConvShape& s = phase.shape;
  const std::int64_t taps = spec.window.elements();
  const std::int64_t row = spec.window.stride.vertical * spec.window.width;
  const std::int64_t column = spec.window.stride.horizontal;
  return {.group = s.out_channels * s.in_channels * taps,
          .first =
              phase.tap_row * spec.window.width + phase.tap_column + (s.kernel_h - 1) * row + (s.kernel_w - 1) * column,
          .out = taps,
          .in = s.out_channels * taps,
          .row = -row,
          .column = -column};
}

namespace {

float bf16_pair(Bf16 lower, Bf16 upper) {
  return std::bit_cast<float>(std::uint32_t{lower.bits} | (std::uint32_t{upper.bits} << 16U));
}
// The weights of an input channel, or with those of the next if there is a `next`, as kernels read them.
float packed_weight(const float* w, std::int64_t /*in*/, bool /*next*/) { return *w; }
float packed_weight(const Bf16* w, std::int64_t in, bool next) { return bf16_pair(*w, next ? w[in] : Bf16{}); }

template <class Value>
void pack_weights(const ConvShape& s, const WeightPlaces& places, const Value* w, int tile, float* packed) {
  constexpr int kTogether = std::is_same_v<Value, Bf16> ? 2 : 1;
  for (int first = 0; first < s.out_channels; first += tile) {
    const int real = std::min(tile, s.out_channels - first);
    for (int in = 0; in < s.in_channels; in += kTogether) {
      const Value* of_channel = w + places.first + first * places.out + in * places.in;
      const bool next = in + 1 < s.in_channels;
      for (int r = 0; r < s.kernel_h; ++r) {
        for (int k = 0; k < s.kernel_w; ++k, packed += tile) {
          const Value* from = of_channel + r * places.row + k * places.column;
          for (int o = 0; o < real; ++o) packed[o] = packed_weight(from + o * places.out, places.in, next);
          for (int o = real; o < tile; ++o) packed[o] = 0.0F;
        }
      }
    }
  }
}

}  // namespace

void pack_forward(const ConvShape& s, const float* w, int tile, float* packed) {
  // Faster than pack_weights(), as all weights of an output channel follow one another.
  const std::int64_t taps = std::int64_t{s.in_channels} * s.kernel_h * s.kernel_w;
  for (int first = 0; first < s.out_channels; first += tile, packed += taps * tile) {
    for (int o = 0; o < tile; ++o) {
      const bool real = first + o < s.out_channels;
      for (std::int64_t t = 0; t < taps; ++t) packed[t * tile + o] = real ? w[(first + o) * taps + t] : 0.0F;
    }
  }
}
void pack_forward(const ConvShape& s, const Bf16* w, int tile, float* packed) {
  pack_weights(s, forward_places(s), w, tile, packed);
}
void pack_data(const ConvSpec& spec, const DataPhase& phase, const float* w, int tile, float* packed) {
  pack_weights(phase.shape, data_places(spec, phase), w, tile, packed);
}
void pack_data(const ConvSpec& spec, const DataPhase& phase, const Bf16* w, int tile, float* packed) {
  pack_weights(phase.shape, data_places(spec, phase), w, tile, packed);
}

bool of_single_pixels(const ConvSpec& spec) {
  const Window2d& w = spec.window;
  return w.height == 1 && w.width == 1 && w.stride == 1 && spec.convolved().height == spec.input.height &&
         spec.convolved().width == spec.input.width && !spec.average_pool;
}

bool reads_in_place(const ConvSpec& spec) {
  // Rows of larger planes are copied, since those of all channels together are too many streams of memory.
  constexpr std::int64_t kMostPixels = 1024;
  return of_single_pixels(spec) && spec.input.height * spec.input.width <= kMostPixels;
}

ConvSpec with_long_rows(const ConvSpec& spec) {
  if (!of_single_pixels(spec)) return spec;
  constexpr std::int64_t kLongest = 256;
  const std::int64_t pixels = spec.input.height * spec.input.width;
  std::int64_t width = std::min(kLongest, pixels);
  while (pixels % width != 0) --width;
  ConvSpec flat = spec;
  if (width > spec.input.width) {
    flat.input.height = pixels / width;
    flat.input.width = width;
  }
  return flat;
}

}  // namespace ddp
