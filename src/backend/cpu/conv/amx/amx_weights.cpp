#include "backend/cpu/conv/amx/amx_weights.h"

#include <algorithm>
#include <cstddef>

namespace ddp {
namespace {

using lanes::kAmxRows;

// The weights of a step of one tile of channels, to be rounded.
struct StepWeights {
  std::array<std::array<float, kAmxRows>, lanes::kAmxMostChannels> lower, upper;
};

// The most weights of a row that are rounded at once; those of 16 pairs of rows stay in the first-level cache.
constexpr std::int64_t kMostRounded = 256;

}  // namespace

template <class Value>
AmxWeights<Value>::AmxWeights(const lanes::ConvShape& shape, const AmxImage& image, int tile_channels)
    : out_channels_(shape.out_channels),
      depth_(image.depth()),
      merged_(image.merged()),
      window_rows_(image.window_rows()),
      kernel_w_(shape.kernel_w),
      tile_channels_(tile_channels) {}

template <class Value>
int AmxWeights<Value>::steps() const {
  return static_cast<int>(tile_count(std::int64_t{kernel_w_} * vectors(), kAmxRows));
}

template <class Value>
int AmxWeights<Value>::channel_tiles() const {
  return static_cast<int>(tile_count(out_channels_, tile_channels_));
}

// Relative to that of the first row and column.
template <class Value>
typename AmxWeights<Value>::Span AmxWeights<Value>::window_of(const WeightPlaces& places) const {
  const std::int64_t last_row = (window_rows_ - 1) * places.row;
  const std::int64_t last_column = (kernel_w_ - 1) * places.column;
  const std::int64_t first = std::min<std::int64_t>(0, last_row) + std::min<std::int64_t>(0, last_column);
  return {first, std::max<std::int64_t>(0, last_row) + std::max<std::int64_t>(0, last_column) - first + 1};
}

template <class Value>
void AmxWeights<Value>::pack(const float* weights, const WeightPlaces& places, std::int64_t groups, int threads,
                             float* packed) const {
  const bool whole = has_whole_steps() && window_of(places).size <= kMostRounded;
  const int parts = whole ? pairs() / kAmxRows : window_rows_ * steps();
#pragma omp parallel for collapse(3) schedule(static) num_threads(threads)
  for (std::int64_t g = 0; g < groups; ++g) {
    for (int t = 0; t < channel_tiles(); ++t) {
      for (int part = 0; part < parts; ++part) {
        float* to = packed + g * group_elements() + t * tile_elements();
        const float* first = weights + g * places.group + places.first;
        if (whole) {
          pack_pairs(places, first, t * tile_channels_, part * kAmxRows, to);
        } else {
          const float* row = first + part / steps() * places.row;
          pack_step(places, row, part % steps(), t * tile_channels_, to + part * step_elements());
        }
      }
    }
  }
}

// The tiles of a step of a row of the window, whose first weights are at `row`, of the output channels from `channel` on.
template <class Value>
void AmxWeights<Value>::pack_step(const WeightPlaces& places, const float* row, int step, int channel,
                                  float* to) const {
  const lanes::AmxKernels& kernels = lanes::amx_kernels();
  const int channels = std::min(tile_channels_, out_channels_ - channel);
  StepWeights values;
  std::uint32_t rests = 0;
  for (std::size_t k = 0; k < kAmxRows; ++k) {
    const int vector = step * kAmxRows + static_cast<int>(k);
    const int column = vector / vectors();
    if (kAmxOtherParts.at(static_cast<std::size_t>(vector % vectors() / pairs())) == 1) rests |= 1U << k;
    const auto at = [&](int index) -> const float* {
      if (column >= kernel_w_ || index >= depth_) return nullptr;
      return row + channel * places.out + column * places.column + index / merged_ * places.in +
             index % merged_ * places.row;
    };
    const float* lower = at(2 * (vector % pairs()));
    const float* upper = at(2 * (vector % pairs()) + 1);
    for (std::size_t o = 0; o < static_cast<std::size_t>(channels); ++o) {
      const std::int64_t offset = static_cast<std::int64_t>(o) * places.out;
      values.lower[o][k] = lower == nullptr ? 0.0F : lower[offset];
      values.upper[o][k] = upper == nullptr ? 0.0F : upper[offset];
    }
  }
  for (std::size_t o = 0; o < static_cast<std::size_t>(channels); ++o, to += kAmxRows) {
    kernels.round_pairs(values.lower[o].data(), values.upper[o].data(), rests, to);
  }
  std::fill_n(to, (tile_channels_ - channels) * kAmxRows, 0.0F);
}

// All steps that have 16 pairs of channels from `pair` on, of the output channels from `channel` on. Weights are rounded in the
// order in which they lie in memory: the windows of several output channels if these follow one another, otherwise of one.
template <class Value>
void AmxWeights<Value>::pack_pairs(const WeightPlaces& places, const float* first, int channel, int pair,
                                   float* to) const {
  const lanes::AmxKernels& kernels = lanes::amx_kernels();
  const int channels = std::min(tile_channels_, out_channels_ - channel);
  const Span window = window_of(places);
  const auto together =
      static_cast<int>(places.out > 2 * window.size
                           ? 1
                           : std::clamp<std::int64_t>((kMostRounded - window.size) / places.out + 1, 1, channels));
  alignas(64) std::array<float, static_cast<std::size_t>(kMostRounded * kAmxRows)> rounded;
  for (std::size_t product = 0; product < kAmxProducts<Value>; ++product) {
    const auto each_tile = [&](const auto& f) {
      for (int r = 0; r < window_rows_; ++r) {
        for (int s = 0; s < kernel_w_; ++s) {
          const int step = (s * vectors() + static_cast<int>(product) * pairs() + pair) / kAmxRows;
          f(r * places.row + s * places.column, to + (std::int64_t{r} * steps() + step) * step_elements());
        }
      }
    };
    for (int o = 0; o < channels; o += together) {
      const int count = std::min(together, channels - o);
      const float* lower = first + (channel + o) * places.out + 2 * pair * places.in + window.first;
      kernels.round_rows(lower, lower + places.in, 2 * places.in, (count - 1) * places.out + window.size,
                         kAmxOtherParts.at(product) == 1, rounded.data());
      each_tile([&](std::int64_t tap, float* tile) {
        const float* from = rounded.data() + (tap - window.first) * kAmxRows;
        for (int i = 0; i < count; ++i) {
          std::copy_n(from + i * places.out * kAmxRows, kAmxRows, tile + (o + i) * kAmxRows);
        }
      });
    }
    each_tile([&](std::int64_t /*tap*/, float* tile) {
      std::fill(tile + channels * kAmxRows, tile + step_elements(), 0.0F);
    });
  }
}

template class AmxWeights<Bf16>;
template class AmxWeights<float>;

}  // namespace ddp
