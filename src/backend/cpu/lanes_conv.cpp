#include "backend/cpu/lanes_conv.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/lanes_kernels.h"
#include "backend/cpu/planes.h"
#include "backend/workspace.h"
#include "base/error.h"

namespace ddp {
namespace {

using lanes::ConvShape;

// Blocks of 16 samples whose gradients are worked through together: enough to make the sums over lanes at the end of
// the weight gradient cheap, few enough to stay in the second-level cache. It decides the order of additions, so it is
// a constant and does not depend on the number of threads.
constexpr std::int64_t kChunk = 4;

std::int64_t blocks_of(std::int64_t samples) { return (samples + kLanes - 1) / kLanes; }

bool padded(const ConvSpec& s) { return s.pad_top + s.pad_left + s.pad_bottom + s.pad_right > 0; }

ConvShape forward_shape(const ConvSpec& s) {
  const Shape out = s.convolved();
  const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
  return {narrow(s.input.channels),
          narrow(s.input.height),
          narrow(s.input.width),
          narrow(std::max(s.pad_top, s.pad_bottom)),
          narrow(std::max(s.pad_left, s.pad_right)),
          narrow(s.pad_top),
          narrow(s.pad_left),
          narrow(s.output_channels),
          narrow(out.height),
          narrow(out.width),
          narrow(s.kernel_h),
          narrow(s.kernel_w)};
}

// The data gradient is a convolution of the output's gradient with the weights flipped and transposed. Its tiles have
// one row, so that only columns need a border.
ConvShape data_shape(const ConvSpec& s) {
  const ConvShape f = forward_shape(s);
  const int pad_left = f.kernel_w - 1 - f.pad_left;
  const int pad_right = f.in_w - f.out_w + f.pad_left;
  return {f.out_channels,
          f.out_h,
          f.out_w,
          0,
          std::max({0, pad_left, pad_right}),
          f.kernel_h - 1 - f.pad_top,
          pad_left,
          f.in_channels,
          f.in_h,
          f.in_w,
          f.kernel_h,
          f.kernel_w};
}

lanes::Epilogue epilogue_of(const ConvSpec& s) {
  if (s.average_pool) return lanes::Epilogue::relu_pool;
  return s.relu ? lanes::Epilogue::relu : lanes::Epilogue::none;
}

std::int64_t packed_weights(const ConvShape& s, int tile_channels) {
  return round_up(s.out_channels, tile_channels) * s.in_channels * s.kernel_h * s.kernel_w;
}

// [out][in][h][w] -> [out/tile][in][h][w][tile]
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

// The same for the data gradient: `s` is its shape (in = the forward's output channels), `w` the forward's weights.
void pack_data(const ConvShape& s, const float* w, int tile, float* packed) {
  const int kernel = s.kernel_h * s.kernel_w;
  for (int first = 0; first < s.out_channels; first += tile) {
    for (int in = 0; in < s.in_channels; ++in) {
      for (int t = 0; t < kernel; ++t) {
        for (int o = 0; o < tile; ++o, ++packed) {
          const bool real = first + o < s.out_channels;
          *packed = real ? w[(std::int64_t{in} * s.out_channels + first + o) * kernel + kernel - 1 - t] : 0.0F;
        }
      }
    }
  }
}

class LanesConv final : public Op {
 public:
  LanesConv(const ConvSpec& spec, const LanesConvTiles& tiles)
      : spec_(spec),
        kernels_(lanes::kernels()),
        shape_(forward_shape(spec)),
        data_(data_shape(spec)),
        forward_(kernels_.forward[tiles.forward]),
        weights_(kernels_.weights[tiles.weights]) {
    if (spec.input_gradient) data_tile_ = &kernels_.forward[tiles.data];
    const std::int64_t chunk = std::min(kChunk, blocks_of(spec.batch));
    Workspace layout;
    packed_ = layout.add<float>(std::max(packed_weights(shape_, forward_.channels),
                                         data_tile_ != nullptr ? packed_weights(data_, data_tile_->channels) : 0));
    padded_x_ = layout.add<float>(padded(spec) ? chunk * shape_.in_channels * shape_.source_plane() : 0);
    dpre_ = layout.add<float>(chunk * data_.in_channels * data_.source_plane());
    workspace_bytes_ = layout.bytes();
  }

  std::size_t saved_bytes() const override {
    if (!spec_.average_pool) return 0;
    return static_cast<std::size_t>(blocks_of(spec_.batch) * spec_.output().elements()) * 4 * sizeof(std::uint16_t);
  }
  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  bool backward_reads_x() const override { return true; }
  bool backward_reads_y() const override { return spec_.relu && !spec_.average_pool; }

  void forward(const ForwardArguments& a) override {
    float* packed = packed_.in(a.workspace);
    pack_forward(shape_, a.parameters[0], forward_.channels, packed);
    const lanes::ConvForward kernel = forward_.kernel[static_cast<int>(epilogue_of(spec_))];
    const std::int64_t blocks = blocks_of(a.active);
    const std::int64_t y_block = kLanes * spec_.output().elements();
    const std::int64_t mask_block = 4 * spec_.output().elements();
    auto* mask = static_cast<std::uint16_t*>(static_cast<void*>(a.saved));
    for (std::int64_t first = 0; first < blocks; first += kChunk) {
      const std::int64_t count = std::min(kChunk, blocks - first);
      const Source x = source(a.x, a.workspace, first, count);
#pragma omp parallel for collapse(2) schedule(static)
      for (std::int64_t b = 0; b < count; ++b) {
        for (int band = 0; band < bands(shape_); ++band) {
          const std::int64_t block = first + b;
          kernel(shape_, x.data + b * x.block, packed, a.parameters[1], a.y + block * y_block,
                 mask == nullptr ? nullptr : mask + block * mask_block, band * kBand,
                 std::min((band + 1) * kBand, shape_.out_h));
        }
      }
    }
  }

  void backward(const BackwardArguments& a) override {
    const std::int64_t blocks = blocks_of(a.active);
    if (blocks == 0) {
      std::fill_n(a.parameter_gradients[0], spec_.weights(), 0.0F);
      if (spec_.bias) std::fill_n(a.parameter_gradients[1], shape_.out_channels, 0.0F);
    }
    float* packed = packed_.in(a.workspace);
    if (data_tile_ != nullptr) pack_data(data_, a.parameters[0], data_tile_->channels, packed);
    for (std::int64_t first = 0; first < blocks; first += kChunk) {
      const std::int64_t count = std::min(kChunk, blocks - first);
      open_gradient(a, first, count);
      if (data_tile_ != nullptr) data_gradient(a, packed, first, count);
      weight_gradient(a, first, count);
    }
    if (data_tile_ != nullptr) clear_rest(a.dx, a.active, spec_.batch, spec_.input, Layout::lanes16);
  }

 private:
  // Rows that one thread computes at a time: even, so that pooled tiles stay whole.
  static constexpr int kBand = 4;
  static int bands(const ConvShape& s) { return (s.out_h + kBand - 1) / kBand; }

  struct Source {
    const float* data;
    std::int64_t block;  // floats between blocks
  };

  std::int64_t dpre_block() const { return data_.in_channels * data_.source_plane(); }

  // The input of `count` blocks from `first` on, copied into planes with a border where the convolution pads.
  Source source(const float* x, std::byte* workspace, std::int64_t first, std::int64_t count) const {
    const std::int64_t plane = kLanes * spec_.input.height * spec_.input.width;
    const float* begin = x + first * spec_.input.channels * plane;
    if (!padded(spec_)) return {begin, spec_.input.channels * plane};
    float* target = padded_x_.in(workspace);
    const std::int64_t planes = count * spec_.input.channels;
#pragma omp parallel for schedule(static)
    for (std::int64_t p = 0; p < planes; ++p) {
      float* to = target + p * shape_.source_plane();
      std::fill_n(to, shape_.source_plane(), 0.0F);
      for (int row = 0; row < shape_.in_h; ++row) {
        std::memcpy(to + kLanes * (std::int64_t{row + shape_.border_h} * shape_.source_w() + shape_.border_w),
                    begin + p * plane + kLanes * row * spec_.input.width,
                    static_cast<std::size_t>(kLanes * spec_.input.width) * sizeof(float));
      }
    }
    return {target, spec_.input.channels * shape_.source_plane()};
  }

  // The gradient before ReLU and pooling, in planes with a border of zero columns.
  void open_gradient(const BackwardArguments& a, std::int64_t first, std::int64_t count) const {
    float* dpre = dpre_.in(a.workspace);
    const std::int64_t out_plane = spec_.output().height * spec_.output().width;
    const std::int64_t begin = first * spec_.output_channels;
    const std::int64_t planes = count * spec_.output_channels;
    const auto* mask = static_cast<const std::uint16_t*>(static_cast<const void*>(a.saved));
#pragma omp parallel for schedule(static)
    for (std::int64_t p = 0; p < planes; ++p) {
      float* to = dpre + p * data_.source_plane();
      const float* dy = a.dy + (begin + p) * out_plane * kLanes;
      clear_border(to);
      to += kLanes * data_.border_w;
      if (spec_.average_pool) {
        kernels_.unpool(dy, mask + (begin + p) * out_plane * 4, to, static_cast<int>(spec_.output().height),
                        static_cast<int>(spec_.output().width), data_.source_w());
        continue;
      }
      const float* y = a.y + (begin + p) * out_plane * kLanes;
      for (int row = 0; row < shape_.out_h; ++row) {
        float* target = to + kLanes * std::int64_t{row} * data_.source_w();
        const std::int64_t at = kLanes * std::int64_t{row} * shape_.out_w;
        for (std::int64_t i = 0; i < kLanes * shape_.out_w; ++i) {
          target[i] = spec_.relu && y[at + i] <= 0.0F ? 0.0F : dy[at + i];
        }
      }
    }
  }

  void clear_border(float* plane) const {
    if (data_.border_w == 0) return;
    const std::int64_t side = kLanes * data_.border_w;
    for (int row = 0; row < data_.in_h; ++row) {
      float* begin = plane + kLanes * std::int64_t{row} * data_.source_w();
      std::fill_n(begin, side, 0.0F);
      std::fill_n(begin + kLanes * data_.source_w() - side, side, 0.0F);
    }
  }

  void data_gradient(const BackwardArguments& a, const float* packed, std::int64_t first, std::int64_t count) const {
    const float* dpre = dpre_.in(a.workspace);
    const lanes::ConvForward kernel = data_tile_->kernel[static_cast<int>(lanes::Epilogue::none)];
    const std::int64_t dx_block = kLanes * spec_.input.elements();
#pragma omp parallel for collapse(2) schedule(static)
    for (std::int64_t b = 0; b < count; ++b) {
      for (int band = 0; band < bands(data_); ++band) {
        kernel(data_, dpre + b * dpre_block(), packed, nullptr, a.dx + (first + b) * dx_block, nullptr, band * kBand,
               std::min((band + 1) * kBand, data_.out_h));
      }
    }
  }

  void weight_gradient(const BackwardArguments& a, std::int64_t first, std::int64_t count) const {
    const float* dpre = dpre_.in(a.workspace);
    const Source x = source(a.x, a.workspace, first, count);
    const lanes::WeightGradient task = {shape_,
                                        x.data,
                                        x.block,
                                        dpre,
                                        dpre_block(),
                                        data_.source_w(),
                                        data_.border_w,
                                        static_cast<int>(count),
                                        a.parameter_gradients[0],
                                        first > 0};
    const int taps = shape_.in_channels * shape_.kernel_h * shape_.kernel_w;
    const int channel_tiles = (shape_.out_channels + weights_.channels - 1) / weights_.channels;
    const int tap_tiles = (taps + weights_.taps - 1) / weights_.taps;
#pragma omp parallel for collapse(2) schedule(static)
    for (int channel = 0; channel < channel_tiles; ++channel) {
      for (int tap = 0; tap < tap_tiles; ++tap) weights_.kernel(task, channel, tap);
    }
    if (!spec_.bias) return;
    const std::int64_t vectors = data_.source_plane() / kLanes;
#pragma omp parallel for schedule(static)
    for (int o = 0; o < shape_.out_channels; ++o) {
      float total = first > 0 ? a.parameter_gradients[1][o] : 0.0F;
      for (std::int64_t b = 0; b < count; ++b) {
        total += kernels_.sum(dpre + b * dpre_block() + o * data_.source_plane(), vectors);
      }
      a.parameter_gradients[1][o] = total;
    }
  }

  ConvSpec spec_;
  const lanes::Kernels& kernels_;
  ConvShape shape_;
  ConvShape data_;
  lanes::ForwardTile forward_;
  const lanes::ForwardTile* data_tile_ = nullptr;
  lanes::WeightsTile weights_;
  Workspace::Part<float> packed_, padded_x_, dpre_;
  std::size_t workspace_bytes_ = 0;
};

std::vector<int> tiles_for(const ConvShape& s, lanes::Epilogue last, bool single_row) {
  const lanes::Kernels& all = lanes::kernels();
  std::vector<int> usable;
  for (int i = 0; i < all.forward_tiles; ++i) {
    const lanes::ForwardTile& tile = all.forward[i];
    if (tile.kernel[static_cast<int>(last)] == nullptr) continue;
    if (tile.columns > s.out_w || tile.rows > s.out_h || (single_row && tile.rows != 1)) continue;
    usable.push_back(i);
  }
  return usable;
}

// Vector multiply-adds that a tile spends on a shape, with a penalty for tiles of few accumulators.
double tile_cost(const ConvShape& s, const lanes::ForwardTile& tile) {
  const auto up = [](int value, int unit) { return static_cast<double>((value + unit - 1) / unit * unit); };
  const double work = up(s.out_channels, tile.channels) * up(s.out_h, tile.rows) * up(s.out_w, tile.columns);
  const int accumulators = tile.channels * tile.rows * tile.columns;
  return work * (1.0 + 4.0 / accumulators);
}

int cheapest(const ConvShape& s, const std::vector<int>& candidates) {
  const lanes::Kernels& all = lanes::kernels();
  return *std::min_element(candidates.begin(), candidates.end(),
                           [&](int a, int b) { return tile_cost(s, all.forward[a]) < tile_cost(s, all.forward[b]); });
}

std::string name_of(const lanes::ForwardTile& tile) {
  return fmt::format("lanes.{}x{}x{}", tile.channels, tile.rows, tile.columns);
}

std::string name_of(const lanes::WeightsTile& tile) { return fmt::format("lanes.{}x{}", tile.channels, tile.taps); }

// The value of `key=` in a text of key=value words, or "".
std::string word_of(const std::string& text, const std::string& key) {
  const std::string wanted = " " + key + "=";
  const std::size_t at = (" " + text).find(wanted);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + wanted.size() - 1;
  return text.substr(begin, text.find(' ', begin) - begin);
}

}  // namespace

bool lanes_conv_supported(const ConvSpec& spec) {
  return spec.stride == 1 && spec.groups == 1 && !tiles_for(forward_shape(spec), epilogue_of(spec), false).empty();
}

std::vector<int> lanes_forward_candidates(const ConvSpec& spec) {
  return tiles_for(forward_shape(spec), epilogue_of(spec), false);
}

std::vector<int> lanes_data_candidates(const ConvSpec& spec) {
  if (!spec.input_gradient) return {};
  return tiles_for(data_shape(spec), lanes::Epilogue::none, true);
}

std::vector<int> lanes_weights_candidates(const ConvSpec& /*spec*/) {
  std::vector<int> all(static_cast<std::size_t>(lanes::kernels().weights_tiles));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  return all;
}

LanesConvTiles lanes_fixed_tiles(const ConvSpec& spec) {
  const lanes::Kernels& all = lanes::kernels();
  LanesConvTiles tiles;
  tiles.forward = cheapest(forward_shape(spec), lanes_forward_candidates(spec));
  if (spec.input_gradient) tiles.data = cheapest(data_shape(spec), lanes_data_candidates(spec));
  const auto cost = [&](int i) {
    const lanes::WeightsTile& tile = all.weights[i];
    const std::int64_t taps = spec.input.channels * spec.kernel_h * spec.kernel_w;
    const auto work = static_cast<double>(round_up(spec.output_channels, tile.channels) * round_up(taps, tile.taps));
    return work * (1.0 + 4.0 / (tile.channels * tile.taps));
  };
  const std::vector<int> candidates = lanes_weights_candidates(spec);
  tiles.weights =
      *std::min_element(candidates.begin(), candidates.end(), [&](int a, int b) { return cost(a) < cost(b); });
  return tiles;
}

std::string to_text(const LanesConvTiles& tiles) {
  const lanes::Kernels& all = lanes::kernels();
  std::string text = "forward=" + name_of(all.forward[tiles.forward]);
  if (tiles.data >= 0) text += " data=" + name_of(all.forward[tiles.data]);
  return text + " weights=" + name_of(all.weights[tiles.weights]);
}

LanesConvTiles lanes_tiles_from_text(const ConvSpec& spec, const std::string& kernels) {
  const lanes::Kernels& all = lanes::kernels();
  const auto pick = [&](const std::string& key, const std::vector<int>& candidates, auto name) {
    const std::string wanted = word_of(kernels, key);
    for (const int i : candidates) {
      if (name(i) == wanted) return i;
    }
    throw Error(ExitCode::preflight,
                fmt::format("the plan asks for the kernel '{}={}', which this machine ({}) does not have; the plan was "
                            "made on another kind of processor",
                            key, wanted, all.instruction_set));
  };
  LanesConvTiles tiles;
  tiles.forward = pick("forward", lanes_forward_candidates(spec), [&](int i) { return name_of(all.forward[i]); });
  if (spec.input_gradient) {
    tiles.data = pick("data", lanes_data_candidates(spec), [&](int i) { return name_of(all.forward[i]); });
  }
  tiles.weights = pick("weights", lanes_weights_candidates(spec), [&](int i) { return name_of(all.weights[i]); });
  return tiles;
}

std::unique_ptr<Op> make_lanes_conv(const ConvSpec& spec, const LanesConvTiles& tiles) {
  return std::make_unique<LanesConv>(spec, tiles);
}

}  // namespace ddp
