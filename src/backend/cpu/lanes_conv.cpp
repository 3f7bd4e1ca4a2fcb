#include "backend/cpu/lanes_conv.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/lanes_kernels.h"
#include "backend/cpu/lanes_shapes.h"
#include "backend/cpu/planes.h"
#include "backend/workspace.h"

namespace ddp {
namespace {

using lanes::ConvShape;

// Blocks of 16 samples whose gradients are worked through together: enough to make the sums over lanes at the end of
// the weight gradient cheap, few enough to stay in the second-level cache. It decides the order of additions, so it is
// a constant and does not depend on the number of threads.
constexpr std::int64_t kChunk = 4;

std::int64_t blocks_of(std::int64_t samples) { return (samples + kLanes - 1) / kLanes; }

bool padded(const ConvSpec& s) { return s.pad_top + s.pad_left + s.pad_bottom + s.pad_right > 0; }

lanes::Epilogue epilogue_of(const ConvSpec& s) {
  if (s.average_pool) return lanes::Epilogue::relu_pool;
  return s.relu ? lanes::Epilogue::relu : lanes::Epilogue::none;
}

class LanesConv final : public Op {
 public:
  LanesConv(const ConvSpec& spec, const LanesConvTiles& tiles)
      : spec_(spec),
        kernels_(lanes::kernels()),
        shape_(forward_shape(spec)),
        phases_(data_phases(spec)),
        gradient_(phases_.front().shape),
        forward_(kernels_.forward[tiles.forward]),
        weights_(kernels_.weights[tiles.weights]) {
    std::int64_t packed_data = 0;
    if (spec.input_gradient) {
      data_tile_ = &kernels_.forward[tiles.data];
      for (const DataPhase& phase : phases_) packed_data += packed_weights(phase.shape, data_tile_->channels);
    }
    const std::int64_t chunk = std::min(kChunk, blocks_of(spec.batch));
    Workspace layout;
    packed_ = layout.add<float>(spec.groups * std::max(packed_weights(shape_, forward_.channels), packed_data));
    padded_x_ = layout.add<float>(padded(spec) ? chunk * spec.input.channels * shape_.source_plane() : 0);
    dpre_ = layout.add<float>(gradient_as_it_is() ? 0 : chunk * dpre_block());
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
    const std::int64_t group_weights = packed_weights(shape_, forward_.channels);
    for (std::int64_t g = 0; g < spec_.groups; ++g) {
      pack_forward(shape_, a.parameters[0] + g * group_parameters(), forward_.channels, packed + g * group_weights);
    }
    const lanes::ConvForward kernel = forward_kernel(forward_, shape_.stride, epilogue_of(spec_));
    const std::int64_t blocks = blocks_of(a.active);
    const std::int64_t y_block = kLanes * spec_.output().elements();
    const std::int64_t mask_block = 4 * spec_.output().elements();
    auto* mask = static_cast<std::uint16_t*>(static_cast<void*>(a.saved));
    for (std::int64_t first = 0; first < blocks; first += kChunk) {
      const std::int64_t count = std::min(kChunk, blocks - first);
      const Source x = source(a.x, a.workspace, first, count);
#pragma omp parallel for collapse(3) schedule(static)
      for (std::int64_t b = 0; b < count; ++b) {
        for (std::int64_t g = 0; g < spec_.groups; ++g) {
          for (int band = 0; band < bands(shape_); ++band) {
            const std::int64_t at = (first + b) * y_block + g * y_block / spec_.groups;
            const std::int64_t mask_at = (first + b) * mask_block + g * mask_block / spec_.groups;
            kernel(shape_, x.data + b * x.block + g * x.group, packed + g * group_weights,
                   spec_.bias ? a.parameters[1] + g * shape_.out_channels : nullptr, a.y + at,
                   spec_.average_pool ? mask + mask_at : nullptr, band * kBand,
                   std::min((band + 1) * kBand, shape_.out_h));
          }
        }
      }
    }
  }

  void backward(const BackwardArguments& a) override {
    const std::int64_t blocks = blocks_of(a.active);
    if (blocks == 0) {
      std::fill_n(a.parameter_gradients[0], spec_.weights(), 0.0F);
      if (spec_.bias) std::fill_n(a.parameter_gradients[1], spec_.output_channels, 0.0F);
    }
    if (data_tile_ != nullptr) pack_data_weights(a);
    for (std::int64_t first = 0; first < blocks; first += kChunk) {
      const std::int64_t count = std::min(kChunk, blocks - first);
      const float* dpre = open_gradient(a, first, count);
      if (data_tile_ != nullptr) data_gradient(a, dpre, first, count);
      weight_gradient(a, dpre, first, count);
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
    std::int64_t group;  // floats between groups of channels
  };

  std::int64_t group_parameters() const { return spec_.weights() / spec_.groups; }
  // Floats of the gradient before ReLU and pooling, with its border, of a block.
  std::int64_t dpre_block() const { return spec_.output_channels * gradient_.source_plane(); }
  std::int64_t dpre_group() const { return dpre_block() / spec_.groups; }
  bool gradient_as_it_is() const { return !spec_.relu && gradient_.border_w == 0; }

  // The input of `count` blocks from `first` on, copied into planes with a border where the convolution pads.
  Source source(const float* x, std::byte* workspace, std::int64_t first, std::int64_t count) const {
    const std::int64_t plane = kLanes * spec_.input.height * spec_.input.width;
    const float* begin = x + first * spec_.input.channels * plane;
    if (!padded(spec_)) return {begin, spec_.input.channels * plane, shape_.in_channels * plane};
    float* target = padded_x_.in(workspace);
    const std::int64_t planes = count * spec_.input.channels;
#pragma omp parallel for schedule(static)
    for (std::int64_t p = 0; p < planes; ++p) pad(begin + p * plane, target + p * shape_.source_plane());
    return {target, spec_.input.channels * shape_.source_plane(), shape_.in_channels * shape_.source_plane()};
  }

  void pad(const float* from, float* to) const {
    const std::int64_t width = kLanes * shape_.in_w;
    const std::int64_t side = kLanes * shape_.border_w;
    const std::int64_t rows = kLanes * std::int64_t{shape_.border_h} * shape_.source_w();
    std::fill_n(to, rows, 0.0F);
    to += rows;
    for (int row = 0; row < shape_.in_h; ++row, from += width, to += width + 2 * side) {
      std::fill_n(to, side, 0.0F);
      std::memcpy(to + side, from, static_cast<std::size_t>(width) * sizeof(float));
      std::fill_n(to + side + width, side, 0.0F);
    }
    std::fill_n(to, rows, 0.0F);
  }

  // The gradient before ReLU and pooling, in planes with a border of zero columns.
  const float* open_gradient(const BackwardArguments& a, std::int64_t first, std::int64_t count) const {
    const std::int64_t out_plane = spec_.output().height * spec_.output().width;
    const std::int64_t begin = first * spec_.output_channels;
    if (gradient_as_it_is()) return a.dy + begin * out_plane * kLanes;
    float* dpre = dpre_.in(a.workspace);
    const std::int64_t planes = count * spec_.output_channels;
    const auto* mask = static_cast<const std::uint16_t*>(static_cast<const void*>(a.saved));
#pragma omp parallel for schedule(static)
    for (std::int64_t p = 0; p < planes; ++p) {
      float* to = dpre + p * gradient_.source_plane();
      const float* dy = a.dy + (begin + p) * out_plane * kLanes;
      clear_border(to);
      to += kLanes * gradient_.border_w;
      if (spec_.average_pool) {
        kernels_.unpool(dy, mask + (begin + p) * out_plane * 4, to, static_cast<int>(spec_.output().height),
                        static_cast<int>(spec_.output().width), gradient_.source_w());
        continue;
      }
      const float* y = a.y + (begin + p) * out_plane * kLanes;
      const std::int64_t width = kLanes * shape_.out_w;
      for (int row = 0; row < shape_.out_h; ++row, dy += width, y += width, to += kLanes * gradient_.source_w()) {
        if (spec_.relu) {
          for (std::int64_t i = 0; i < width; ++i) to[i] = y[i] <= 0.0F ? 0.0F : dy[i];
        } else {
          std::memcpy(to, dy, static_cast<std::size_t>(width) * sizeof(float));
        }
      }
    }
    return dpre;
  }

  void clear_border(float* plane) const {
    if (gradient_.border_w == 0) return;
    const std::int64_t side = kLanes * gradient_.border_w;
    for (int row = 0; row < gradient_.in_h; ++row) {
      float* begin = plane + kLanes * std::int64_t{row} * gradient_.source_w();
      std::fill_n(begin, side, 0.0F);
      std::fill_n(begin + kLanes * gradient_.source_w() - side, side, 0.0F);
    }
  }

  void pack_data_weights(const BackwardArguments& a) const {
    float* packed = packed_.in(a.workspace);
    for (const DataPhase& phase : phases_) {
      for (std::int64_t g = 0; g < spec_.groups; ++g) {
        pack_data(spec_, phase, a.parameters[0] + g * group_parameters(), data_tile_->channels, packed);
        packed += packed_weights(phase.shape, data_tile_->channels);
      }
    }
  }

  void data_gradient(const BackwardArguments& a, const float* dpre, std::int64_t first, std::int64_t count) const {
    const lanes::ConvForward kernel = forward_kernel(*data_tile_, 1, lanes::Epilogue::none);
    const std::int64_t dx_block = kLanes * spec_.input.elements();
    const float* packed = packed_.in(a.workspace);
    for (const DataPhase& phase : phases_) {
      const std::int64_t group_weights = packed_weights(phase.shape, data_tile_->channels);
#pragma omp parallel for collapse(3) schedule(static)
      for (std::int64_t b = 0; b < count; ++b) {
        for (std::int64_t g = 0; g < spec_.groups; ++g) {
          for (int band = 0; band < bands(phase.shape); ++band) {
            float* dx = a.dx + (first + b) * dx_block + g * dx_block / spec_.groups + kLanes * phase.begin;
            kernel(phase.shape, dpre + b * dpre_block() + g * dpre_group(), packed + g * group_weights, nullptr, dx,
                   nullptr, band * kBand, std::min((band + 1) * kBand, phase.shape.out_h));
          }
        }
      }
      packed += spec_.groups * group_weights;
    }
  }

  void weight_gradient(const BackwardArguments& a, const float* dpre, std::int64_t first, std::int64_t count) const {
    const Source x = source(a.x, a.workspace, first, count);
    const int taps = shape_.in_channels * shape_.kernel_h * shape_.kernel_w;
    const int channel_tiles = (shape_.out_channels + weights_.channels - 1) / weights_.channels;
    const int tap_tiles = (taps + weights_.taps - 1) / weights_.taps;
#pragma omp parallel for collapse(3) schedule(static)
    for (std::int64_t g = 0; g < spec_.groups; ++g) {
      for (int channel = 0; channel < channel_tiles; ++channel) {
        for (int tap = 0; tap < tap_tiles; ++tap) {
          const lanes::WeightGradient task = {shape_,
                                              x.data + g * x.group,
                                              x.block,
                                              dpre + g * dpre_group(),
                                              dpre_block(),
                                              gradient_.source_w(),
                                              gradient_.border_w,
                                              static_cast<int>(count),
                                              a.parameter_gradients[0] + g * group_parameters(),
                                              first > 0};
          weights_.kernel(task, channel, tap);
        }
      }
    }
    if (!spec_.bias) return;
    const std::int64_t vectors = gradient_.source_plane() / kLanes;
#pragma omp parallel for schedule(static)
    for (std::int64_t o = 0; o < spec_.output_channels; ++o) {
      float total = first > 0 ? a.parameter_gradients[1][o] : 0.0F;
      for (std::int64_t b = 0; b < count; ++b) {
        total += kernels_.sum(dpre + b * dpre_block() + o * gradient_.source_plane(), vectors);
      }
      a.parameter_gradients[1][o] = total;
    }
  }

  ConvSpec spec_;
  const lanes::Kernels& kernels_;
  ConvShape shape_;
  std::vector<DataPhase> phases_;
  ConvShape gradient_;  // whose source is the gradient before ReLU and pooling
  lanes::ForwardTile forward_;
  const lanes::ForwardTile* data_tile_ = nullptr;
  lanes::WeightsTile weights_;
  Workspace::Part<float> packed_, padded_x_, dpre_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Op> make_lanes_conv(const ConvSpec& spec, const LanesConvTiles& tiles) {
  return std::make_unique<LanesConv>(spec, tiles);
}

}  // namespace ddp
