#include "backend/cpu/lanes_conv.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "backend/cpu/lanes_kernels.h"
#include "backend/cpu/lanes_shapes.h"
#include "backend/cpu/planes.h"
#include "backend/workspace.h"

namespace ddp {
namespace {

using lanes::ConvShape;

// Blocks of 16 samples whose gradients are processed together: few enough to stay in the cache. Like the two constants
// below, it determines the order of additions, so it must not depend on the number of threads.
constexpr std::int64_t kChunk = 4;
// Positions over which a weight gradient is summed before the sums over lanes, which cost about as much as ten
// positions.
constexpr std::int64_t kPiece = 196;
// Elements of an output that are widened at a time.
constexpr std::int64_t kOpened = 1024;
// The size of a band's image in floats: half of the second-level cache.
constexpr std::int64_t kBandElements = 256 * 1024;

std::int64_t blocks_of(std::int64_t samples) { return (samples + kLanes - 1) / kLanes; }

// The rows of the result computed from one band: as many as fit its image; even, so that pooling windows are not split.
int band_rows(const ConvShape& s) {
  int rows = 2;
  while (rows < s.out_h && band_elements(band_of(s, 0, rows + 2, false)) <= kBandElements) rows += 2;
  return rows;
}

// Value: the element of activations. With bf16 forward and data gradient multiply pairs of channels, and write fp32
// results of a band, which are then rounded.
template <class Value>
class LanesConv final : public Op {
  static constexpr bool kPairs = std::is_same_v<Value, Bf16>;

 public:
  LanesConv(const ConvSpec& spec, const LanesConvTiles& tiles)
      : spec_(spec),
        kernels_(lanes::kernels()),
        shape_(forward_shape(spec)),
        phases_(data_phases(spec)),
        forward_((kPairs ? lanes::pair_tiles() : kernels_.forward)[tiles.forward]),
        weights_(kernels_.weights[tiles.weights]),
        threads_(omp_get_max_threads()) {
    const std::int64_t positions = shape_.out_plane;
    piece_rows_ = static_cast<int>(std::clamp<std::int64_t>(kPiece / shape_.out_w, 1, shape_.out_h));
    piece_blocks_ = std::clamp<std::int64_t>(kPiece / positions, 1, kChunk);
    std::int64_t packed_data = 0;
    std::int64_t band = band_elements(band_of(read_shape(shape_), 0, rows_of(shape_), false));
    std::int64_t results = result_elements(shape_);
    if (spec.input_gradient) {
      data_tile_ = &(kPairs ? lanes::pair_tiles() : kernels_.forward)[tiles.data];
      for (const DataPhase& phase : phases_) {
        packed_data += packed_weights(read_shape(phase.shape), data_tile_->channels);
        band = std::max(band, band_elements(band_of(read_shape(phase.shape), 0, rows_of(phase.shape), false)));
        results = std::max(results, result_elements(phase.shape));
      }
    }
    const std::int64_t piece = band_elements(band_of(shape_, 0, piece_rows_, false));
    Workspace layout;
    packed_ =
        layout.add<float>(spec.groups * std::max(packed_weights(read_shape(shape_), forward_.channels), packed_data));
    band_size_ = round_up(band, kLanes);
    bands_ = layout.add<float>(threads_ * band_size_);
    result_size_ = results;
    results_ = layout.add<float>(threads_ * result_size_);
    piece_ = layout.add<float>(piece_blocks_ * spec.groups * piece);
    dpre_ = layout.add<float>(spec.relu || kPairs ? std::min(kChunk, blocks_of(spec.batch)) * dpre_block() : 0);
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
    const std::int64_t group_weights = packed_weights(read_shape(shape_), forward_.channels);
    for (std::int64_t g = 0; g < spec_.groups; ++g) {
      const float* weights = a.parameters[0] + g * group_parameters();
      if constexpr (kPairs) {
        pack_forward_pairs(shape_, weights, forward_.channels, packed + g * group_weights);
      } else {
        pack_forward(shape_, weights, forward_.channels, packed + g * group_weights);
      }
    }
    const std::int64_t row = kLanes * spec_.output().width;
    const std::int64_t y_block = kLanes * spec_.output().elements();
    auto* mask = static_cast<std::uint16_t*>(static_cast<void*>(a.saved));
    const bool single_rows = forward_.rows == 1;
    each_band(shape_, blocks_of(a.active), [&](std::int64_t b, std::int64_t g, int begin, int end) {
      float* image = band_image(a.workspace);
      const Band band = band_of(shape_, begin, end, single_rows);
      copy_image(band, shape_, in(a.x) + b * x_block() + g * x_group(), image);
      const std::int64_t at = b * y_block + g * y_block / spec_.groups + (spec_.average_pool ? begin / 2 : begin) * row;
      const lanes::ConvForward kernel = forward_kernel(forward_, band.shape.stride, epilogue_of(spec_));
      // There are four 16-bit masks for 16 results.
      run_band(kernel, band.shape, image, packed + g * group_weights,
               spec_.bias ? a.parameters[1] + g * shape_.out_channels : nullptr, in(a.y) + at,
               spec_.average_pool ? mask + at / 4 : nullptr, end - begin, a.workspace);
    });
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
      if (spec_.bias) bias_gradient(a, dpre, first, count);
    }
    if (data_tile_ != nullptr) clear_rest(in(a.dx), a.active, spec_.batch, spec_.input, Layout::lanes16);
  }

 private:
  std::int64_t group_parameters() const { return spec_.weights() / spec_.groups; }
  std::int64_t x_block() const { return kLanes * spec_.input.elements(); }
  std::int64_t x_group() const { return x_block() / spec_.groups; }
  // The size in floats of the gradient before ReLU and pooling of a block.
  std::int64_t dpre_block() const { return kLanes * spec_.convolved().elements(); }
  std::int64_t dpre_group() const { return dpre_block() / spec_.groups; }
  float* band_image(std::byte* workspace) const { return bands_.in(workspace) + omp_get_thread_num() * band_size_; }
  float* band_results(std::byte* workspace) const {
    return results_.in(workspace) + omp_get_thread_num() * result_size_;
  }
  static const Value* in(ConstActivations values) {
    if constexpr (kPairs) return values.bf16();
    if constexpr (!kPairs) return values.fp32();
  }
  static Value* in(Activations values) {
    if constexpr (kPairs) return values.bf16();
    if constexpr (!kPairs) return values.fp32();
  }
  // The shape as kernels read the image.
  static ConvShape read_shape(const ConvShape& shape) { return kPairs ? paired(shape) : shape; }
  // Pooled results are not divided into bands with pairs, so that those of a band have the planes of the whole.
  int rows_of(const ConvShape& shape) const {
    return kPairs && spec_.average_pool && &shape == &shape_ ? shape.out_h : band_rows(read_shape(shape));
  }
  std::int64_t result_elements(const ConvShape& shape) const {
    return kPairs ? kLanes * shape.out_channels * std::int64_t{rows_of(shape)} * shape.out_w : 0;
  }
  static void copy_image(const Band& band, const ConvShape& whole, const auto* x, float* image) {
    if constexpr (kPairs) {
      copy_band_pairs(whole, band, x, image);
    } else {
      copy_band(whole, band, x, image);
    }
  }

  // Computes the results of a band, from `y` on.
  void run_band(lanes::ConvForward kernel, const ConvShape& shape, const float* image, const float* weights,
                const float* bias, Value* y, std::uint16_t* mask, int rows, std::byte* workspace) const {
    if constexpr (!kPairs) {
      kernel(shape, image, weights, bias, y, mask, 0, rows);
    } else {
      ConvShape own = paired(shape);
      own.out_plane = std::int64_t{rows} * shape.out_w;
      own.out_row = shape.out_w;
      own.out_step = 1;
      float* results = band_results(workspace);
      kernel(own, image, weights, bias, results, mask, 0, rows);
      if (mask != nullptr) {
        narrow(y, results, kLanes * shape.out_channels * (own.out_plane / own.out_row / 2) * (shape.out_w / 2));
        return;
      }
      for (int c = 0; c < shape.out_channels; ++c) {
        for (int i = 0; i < rows; ++i, results += kLanes * shape.out_w) {
          write_row(y + kLanes * (c * shape.out_plane + i * shape.out_row), results, shape);
        }
      }
    }
  }
  void narrow(Bf16* to, const float* from, std::int64_t count) const {
    kernels_.elementwise.to_bf16(count, from, &to->bits);
  }
  void write_row(Bf16* to, const float* from, const ConvShape& shape) const {
    if (shape.out_step == 1) {
      narrow(to, from, kLanes * shape.out_w);
      return;
    }
    for (int j = 0; j < shape.out_w; ++j) narrow(to + kLanes * j * shape.out_step, from + kLanes * j, kLanes);
  }

  // Calls f(block, group, first row, end of rows) for all bands of `count` blocks.
  template <class F>
  void each_band(const ConvShape& shape, std::int64_t count, F f) const {
    const int rows = rows_of(shape);
    const int bands = (shape.out_h + rows - 1) / rows;
#pragma omp parallel for collapse(3) schedule(static) num_threads(threads_)
    for (std::int64_t b = 0; b < count; ++b) {
      for (std::int64_t g = 0; g < spec_.groups; ++g) {
        for (int band = 0; band < bands; ++band) f(b, g, band * rows, std::min((band + 1) * rows, shape.out_h));
      }
    }
  }

  // The gradient before ReLU and pooling; dy itself if there is neither.
  const float* open_gradient(const BackwardArguments& a, std::int64_t first, std::int64_t count) const {
    const std::int64_t plane = kLanes * spec_.output().height * spec_.output().width;
    const std::int64_t begin = first * spec_.output_channels * plane;
    if constexpr (!kPairs) {
      if (!spec_.relu) return a.dy.fp32() + begin;
    }
    float* dpre = dpre_.in(a.workspace);
    const std::int64_t planes = count * spec_.output_channels;
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t p = 0; p < planes; ++p) {
      open_plane(a, begin + p * plane, plane, dpre + p * kLanes * shape_.out_plane);
    }
    return dpre;
  }

  // The same for one plane of the output, `plane` elements from `at` on.
  void open_plane(const BackwardArguments& a, std::int64_t at, std::int64_t plane, float* to) const {
    const float* dy = nullptr;
    if constexpr (kPairs) {
      float* widened = spec_.average_pool ? band_results(a.workspace) : to;
      kernels_.elementwise.from_bf16(plane, &(in(a.dy) + at)->bits, widened);
      dy = widened;
    } else {
      dy = in(a.dy) + at;
    }
    if (spec_.average_pool) {
      const auto* mask = static_cast<const std::uint16_t*>(static_cast<const void*>(a.saved));
      kernels_.unpool(dy, mask + at / 4, to, static_cast<int>(spec_.output().height),
                      static_cast<int>(spec_.output().width), shape_.out_w);
    } else if (spec_.relu) {
      const auto relu_backward = kernels_.elementwise.backward[static_cast<std::size_t>(Activation::relu)];
      if constexpr (kPairs) {
        std::array<float, kOpened> y{};
        for (std::int64_t i = 0; i < plane; i += kOpened) {
          const std::int64_t some = std::min<std::int64_t>(kOpened, plane - i);
          kernels_.elementwise.from_bf16(some, &(in(a.y) + at + i)->bits, y.data());
          relu_backward(some, y.data(), dy + i, to + i, nullptr);
        }
      } else {
        relu_backward(plane, in(a.y) + at, dy, to, nullptr);
      }
    }
  }

  void pack_data_weights(const BackwardArguments& a) const {
    float* packed = packed_.in(a.workspace);
    for (const DataPhase& phase : phases_) {
      for (std::int64_t g = 0; g < spec_.groups; ++g) {
        const float* weights = a.parameters[0] + g * group_parameters();
        if constexpr (kPairs) {
          pack_data_pairs(spec_, phase, weights, data_tile_->channels, packed);
        } else {
          pack_data(spec_, phase, weights, data_tile_->channels, packed);
        }
        packed += packed_weights(read_shape(phase.shape), data_tile_->channels);
      }
    }
  }

  void data_gradient(const BackwardArguments& a, const float* dpre, std::int64_t first, std::int64_t count) const {
    const lanes::ConvForward kernel = forward_kernel(*data_tile_, 1, lanes::Epilogue::none);
    const float* packed = packed_.in(a.workspace);
    for (const DataPhase& phase : phases_) {
      const std::int64_t group_weights = packed_weights(read_shape(phase.shape), data_tile_->channels);
      each_band(phase.shape, count, [&](std::int64_t b, std::int64_t g, int begin, int end) {
        float* image = band_image(a.workspace);
        const Band band = band_of(phase.shape, begin, end, true);
        copy_image(band, phase.shape, dpre + b * dpre_block() + g * dpre_group(), image);
        Value* dx =
            in(a.dx) + (first + b) * x_block() + g * x_group() + kLanes * (phase.begin + begin * phase.shape.out_row);
        run_band(kernel, band.shape, image, packed + g * group_weights, nullptr, dx, nullptr, end - begin, a.workspace);
      });
      packed += spec_.groups * group_weights;
    }
  }

  void weight_gradient(const BackwardArguments& a, const float* dpre, std::int64_t first, std::int64_t count) const {
    for (std::int64_t b = 0; b < count; b += piece_blocks_) {
      const std::int64_t blocks = std::min(piece_blocks_, count - b);
      for (int begin = 0; begin < shape_.out_h; begin += piece_rows_) {
        const int end = std::min(begin + piece_rows_, shape_.out_h);
        const float* dy = dpre + b * dpre_block() + kLanes * begin * shape_.out_w;
        add_piece(a, in(a.x) + (first + b) * x_block(), dy, blocks, begin, end, first + b == 0 && begin == 0);
      }
    }
  }

  // The contribution of some rows of some blocks to the weight gradient.
  void add_piece(const BackwardArguments& a, const Value* x, const float* dy, std::int64_t blocks, int begin, int end,
                 bool is_first) const {
    const Band band = band_of(shape_, begin, end, false);
    const std::int64_t size = band_elements(band);
    float* images = piece_.in(a.workspace);
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_)
    for (std::int64_t b = 0; b < blocks; ++b) {
      for (std::int64_t g = 0; g < spec_.groups; ++g) {
        copy_band(shape_, band, x + b * x_block() + g * x_group(), images + (b * spec_.groups + g) * size);
      }
    }
    const int taps = shape_.in_channels * shape_.kernel_h * shape_.kernel_w;
    const int channel_tiles = (shape_.out_channels + weights_.channels - 1) / weights_.channels;
    const int tap_tiles = (taps + weights_.taps - 1) / weights_.taps;
#pragma omp parallel for collapse(3) schedule(static) num_threads(threads_)
    for (std::int64_t g = 0; g < spec_.groups; ++g) {
      for (int tap = 0; tap < tap_tiles; ++tap) {
        for (int channel = 0; channel < channel_tiles; ++channel) {
          const lanes::WeightGradient task = {band.shape,
                                              images + g * size,
                                              spec_.groups * size,
                                              dy + g * dpre_group(),
                                              dpre_block(),
                                              shape_.out_plane,
                                              static_cast<int>(blocks),
                                              a.parameter_gradients[0] + g * group_parameters(),
                                              !is_first};
          weights_.kernel(task, channel, tap);
        }
      }
    }
  }

  void bias_gradient(const BackwardArguments& a, const float* dpre, std::int64_t first, std::int64_t count) const {
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t o = 0; o < spec_.output_channels; ++o) {
      float total = first > 0 ? a.parameter_gradients[1][o] : 0.0F;
      for (std::int64_t b = 0; b < count; ++b) {
        total += kernels_.sum(dpre + b * dpre_block() + o * kLanes * shape_.out_plane, shape_.out_plane);
      }
      a.parameter_gradients[1][o] = total;
    }
  }

  ConvSpec spec_;
  const lanes::Kernels& kernels_;
  ConvShape shape_;
  std::vector<DataPhase> phases_;
  lanes::ForwardTile forward_;
  const lanes::ForwardTile* data_tile_ = nullptr;
  lanes::WeightsTile weights_;
  int threads_;
  int piece_rows_ = 0;
  std::int64_t piece_blocks_ = 0;
  std::int64_t band_size_ = 0;
  std::int64_t result_size_ = 0;
  Workspace::Part<float> packed_, bands_, results_, piece_, dpre_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Op> make_lanes_conv(const ConvSpec& spec, const LanesConvTiles& tiles) {
  return std::make_unique<LanesConv<float>>(spec, tiles);
}

std::unique_ptr<Op> make_lanes_bf16_conv(const ConvSpec& spec, const LanesConvTiles& tiles) {
  return std::make_unique<LanesConv<Bf16>>(spec, tiles);
}

}  // namespace ddp
