// Convolution in lanes16 on bf16 activations, with kernels that multiply pairs of bf16 numbers: of two input channels
// forward and for the data gradient, of two samples for the weight gradient; or tiles of such pairs with AMX. Sums are fp32.
#include <omp.h>

#include <algorithm>

#include "backend/cpu/conv/amx/amx_directions.h"
#include "backend/cpu/conv/conv.h"
#include "backend/cpu/conv/tiles/conv_kernels.h"
#include "backend/cpu/conv/tiles/shapes.h"
#include "backend/cpu/conv/winograd/winograd_directions.h"
#include "backend/cpu/device/planes.h"
#include "backend/cpu/pointwise/elementwise_kernels.h"
#include "backend/workspace.h"

namespace ddp {
namespace {

using lanes::ConvShape;

// Positions over which a weight gradient is summed before the sums over lanes, which cost about as much as twenty
// positions, and the most blocks of 16 samples that make them up. They determine the order of additions, so they must
// not depend on the number of threads.
constexpr std::int64_t kPairPiece = 196;
constexpr std::int64_t kMostBlocks = 4;

class LanesBf16Conv final : public BlockConv {
 public:
  LanesBf16Conv(const ConvSpec& spec, const LanesConvTiles& tiles)
      : BlockConv(spec),
        kernels_(lanes::conv_kernels()),
        shape_(forward_shape(spec)),
        phases_(data_phases(spec)),
        forward_(direct_tile(tiles.forward, true)),
        threads_(omp_get_max_threads()),
        amx_(spec, tiles, threads_),
        winograd_(spec, tiles, threads_) {
    piece_rows_ = static_cast<int>(std::clamp<std::int64_t>(kPairPiece / shape_.out_w, 1, shape_.out_h));
    piece_blocks_ = std::clamp<std::int64_t>((kPairPiece + shape_.out_plane - 1) / shape_.out_plane, 1, kMostBlocks);
    if (tiles.weights.method == WeightTile::Method::direct) weights_ = &kernels_.weights[tiles.weights.index];
    if (amx_.has_weights()) piece_blocks_ = amx_.most_blocks();
    if (tiles.weights.method == WeightTile::Method::outer) {
      outer_ = &outer_tile(tiles.weights.index);
      width_ = outer_width(shape_, *outer_);
    }
    copies_x_ = spec.window.padding.any();
    std::int64_t packed_data = 0;
    std::int64_t band = image_elements(shape_);
    if (spec.input_gradient) {
      data_tile_ = &direct_tile(tiles.data.value(), true);
      for (const DataPhase& phase : phases_) {
        packed_data += spec.groups * packed_weights(paired(phase.shape), data_tile_->channels);
      }
      data_shape_ = all_phases(phases_);
      band = std::max(band, image_elements(data_shape_));
    }
    const Band piece_band = band_of(shape_, 0, piece_rows_, false);
    const std::int64_t piece = copies_x_ && weights_ != nullptr ? band_elements(piece_band) : 0;
    outer_size_ = outer_ == nullptr ? 0 : outer_elements(piece_band, width_, Element::bf16);
    const std::int64_t packed_forward = winograd_.has_forward() || amx_.has_forward()
                                            ? 0
                                            : spec.groups * packed_weights(paired(shape_), forward_.channels);
    if (winograd_.has_data() || amx_.has_data()) packed_data = 0;
    band = std::max({band, amx_.scratch_elements(), winograd_.scratch_elements()});
    Workspace layout;
    packed_ =
        layout.add<float>(std::max({packed_forward, packed_data, amx_.packed_elements(), winograd_.packed_elements()}));
    rounded_ = layout.add<Bf16>(spec.weights());
    band_size_ = round_up(band, kLanes);
    bands_ = layout.add<float>(threads_ * band_size_);
    piece_ = layout.add<Bf16>(piece_blocks_ * spec.groups * piece);
    outer_x_ = layout.add<float>(piece_blocks_ * spec.groups * outer_size_);
    dpre_ = layout.add<Bf16>(spec.relu ? piece_blocks_ * dpre_block() : 0);
    sums_ = layout.add<float>(std::max(winograd_.sums_elements(), amx_.sums_elements()));
    workspace_bytes_ = layout.bytes();
  }

  std::int64_t forward_blocks() const override { return std::max<std::int64_t>(threads_, winograd_.forward_blocks()); }
  std::int64_t backward_blocks() const override { return piece_blocks_; }

  void begin_forward(const ForwardArguments& a) override {
    float* packed = packed_.in(a.workspace);
    if (winograd_.has_forward()) {
      winograd_.pack_forward(a.parameters[0], packed);
      return;
    }
    if (amx_.has_forward()) {
      amx_.pack_forward(a.parameters[0], packed);
      return;
    }
    const Bf16* weights = rounded_weights(a.parameters[0], a.workspace);
    const std::int64_t group_weights = packed_weights(paired(shape_), forward_.channels);
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t g = 0; g < spec_.groups; ++g) {
      pack_forward_pairs(shape_, weights + g * group_parameters(), forward_.channels, packed + g * group_weights);
    }
  }

  void forward_part(const ForwardArguments& a) override {
    if (winograd_.has_forward()) {
      winograd_.forward(a, memory(a.workspace));
      return;
    }
    if (amx_.has_forward()) {
      amx_.forward(a, memory(a.workspace));
      return;
    }
    const float* packed = packed_.in(a.workspace);
    const std::int64_t group_weights = packed_weights(paired(shape_), forward_.channels);
    const std::int64_t row = kLanes * spec_.output().width;
    auto* mask = static_cast<std::uint16_t*>(static_cast<void*>(a.saved));
    const bool single_rows = forward_.rows == 1;
    each_band(paired(shape_), sample_blocks(a.active), spec_.groups, threads_,
              [&](std::int64_t b, std::int64_t g, int begin, int end) {
                float* image = band_image(a.workspace);
                const Band band = band_of(shape_, begin, end, single_rows);
                copy_band_pairs(shape_, band, a.x.bf16() + b * x_block() + g * x_group(), image);
                const std::int64_t at =
                    b * y_block() + g * y_block() / spec_.groups + (spec_.average_pool ? begin / 2 : begin) * row;
                const lanes::ConvForward kernel = forward_kernel(forward_, band.shape.stride, spec_.average_pool);
                // There are four 16-bit masks for 16 results.
                kernel(paired(band.shape), image, packed + g * group_weights,
                       spec_.bias ? a.parameters[1] + g * shape_.out_channels : nullptr,
                       lanes::least_result(spec_.relu), a.y.bf16() + at, spec_.average_pool ? mask + at / 4 : nullptr,
                       0, end - begin);
              });
  }

  void begin_backward(const BackwardArguments& a) override {
    if (data_tile_ != nullptr) pack_data_weights(a);
  }

  void backward_part(const BackwardArguments& a, bool is_first, bool is_last) override {
    const std::int64_t count = sample_blocks(a.active);
    const Bf16* dpre = open_gradient(a, count);
    if (data_tile_ != nullptr) data_gradient(a, dpre, count);
    if (winograd_.has_weights()) {
      winograd_.add_weights(a.x.bf16(), dpre, count, !is_first, is_last ? a.parameter_gradients[0] : nullptr,
                            sums_.in(a.workspace));
    } else if (amx_.has_weights()) {
      amx_.add_weights(a.x.bf16(), dpre, count, !is_first, is_last ? a.parameter_gradients[0] : nullptr,
                       sums_.in(a.workspace));
    } else {
      weight_gradient(a, dpre, count, is_first);
    }
    if (spec_.bias) bias_gradient(a, dpre, count, is_first);
  }

 private:
  DirectionMemory memory(std::byte* workspace) const {
    return {packed_.in(workspace), bands_.in(workspace), band_size_};
  }

  float* band_image(std::byte* workspace) const { return bands_.in(workspace) + omp_get_thread_num() * band_size_; }
  static std::int64_t image_elements(const ConvShape& shape) {
    return band_elements(band_of(paired(shape), 0, band_rows(paired(shape)), false));
  }

  const Bf16* rounded_weights(const float* from, std::byte* workspace) const {
    Bf16* to = rounded_.in(workspace);
    lanes::elementwise_kernels().to_bf16(spec_.weights(), from, &to->bits);
    return to;
  }

  // The gradient before ReLU and pooling; dy itself if there is neither.
  const Bf16* open_gradient(const BackwardArguments& a, std::int64_t count) const {
    const Shape out = spec_.output();
    const std::int64_t plane = kLanes * out.height * out.width;
    if (!spec_.relu) return a.dy.bf16();
    Bf16* dpre = dpre_.in(a.workspace);
    const std::int64_t planes = count * out.channels;
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t p = 0; p < planes; ++p) {
      const std::int64_t at = p * plane;
      Bf16* to = dpre + p * kLanes * shape_.out_plane;
      if (spec_.average_pool) {
        const auto* mask = static_cast<const std::uint16_t*>(static_cast<const void*>(a.saved));
        kernels_.unpool_bf16(&a.dy.bf16()[at].bits, mask + at / 4, &to->bits, static_cast<int>(out.height),
                             static_cast<int>(out.width), shape_.out_w);
      } else {
        lanes::elementwise_kernels().bf16.backward[static_cast<std::size_t>(Activation::relu)](
            plane, &a.y.bf16()[at].bits, &a.dy.bf16()[at].bits, &to->bits, nullptr);
      }
    }
    return dpre;
  }

  void pack_data_weights(const BackwardArguments& a) const {
    float* packed = packed_.in(a.workspace);
    if (winograd_.has_data()) {
      winograd_.pack_data(a.parameters[0], packed);
      return;
    }
    if (amx_.has_data()) {
      amx_.pack_data(a.parameters[0], packed);
      return;
    }
    const Bf16* weights = rounded_weights(a.parameters[0], a.workspace);
    for (const DataPhase& phase : phases_) {
      for (std::int64_t g = 0; g < spec_.groups; ++g) {
        pack_data_pairs(spec_, phase, weights + g * group_parameters(), data_tile_->channels, packed);
        packed += packed_weights(paired(phase.shape), data_tile_->channels);
      }
    }
  }

  void data_gradient(const BackwardArguments& a, const Bf16* dpre, std::int64_t count) const {
    if (winograd_.has_data()) {
      winograd_.data_gradient(a.parameters[0], dpre, a.dx.bf16(), count, memory(a.workspace));
      return;
    }
    if (amx_.has_data()) {
      amx_.data_gradient(dpre, a.dx.bf16(), count, memory(a.workspace));
      return;
    }
    const lanes::ConvForward kernel = forward_kernel(*data_tile_, 1);
    each_band(
        paired(data_shape_), count, spec_.groups, threads_, [&](std::int64_t b, std::int64_t g, int begin, int end) {
          float* image = band_image(a.workspace);
          const Band band = band_of(data_shape_, begin, end, true);
          copy_band_pairs(data_shape_, band, dpre + b * dpre_block() + g * dpre_group(), image);
          const float* packed = packed_.in(a.workspace);
          for (const DataPhase& phase : phases_) {
            const std::int64_t group_weights = packed_weights(paired(phase.shape), data_tile_->channels);
            const ConvShape shape = paired(shape_in(band, phase, begin, end));
            Bf16* dx = a.dx.bf16() + b * x_block() + g * x_group() + kLanes * (phase.begin + begin * shape.out_row);
            kernel(shape, image, packed + g * group_weights, nullptr, lanes::least_result(false), dx, nullptr, 0,
                   shape.out_h);
            packed += spec_.groups * group_weights;
          }
        });
  }

  void weight_gradient(const BackwardArguments& a, const Bf16* dpre, std::int64_t count, bool is_first) const {
    for (int begin = 0; begin < shape_.out_h; begin += piece_rows_) {
      const int end = std::min(begin + piece_rows_, shape_.out_h);
      if (outer_ != nullptr) {
        add_outer_piece(a, dpre, count, {begin, end, is_first && begin == 0});
      } else {
        add_piece(a, dpre, count, {begin, end, is_first && begin == 0});
      }
    }
  }

  // Some rows of the results; `sets` of the first piece of all.
  struct Piece {
    int begin, end;
    bool sets;
  };

  // The contribution of some rows of some blocks to the weight gradient.
  void add_piece(const BackwardArguments& a, const Bf16* dpre, std::int64_t blocks, const Piece& piece) const {
    const int begin = piece.begin;
    const Bf16* x = a.x.bf16();
    ConvShape shape = shape_;
    shape.out_h = piece.end - begin;
    std::int64_t block = x_block();
    std::int64_t group = x_group();
    if (copies_x_) {
      const Band band = band_of(shape_, begin, piece.end, false);
      shape = band.shape;
      group = band_elements(band);
      block = spec_.groups * group;
      Bf16* images = piece_.in(a.workspace);
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_)
      for (std::int64_t b = 0; b < blocks; ++b) {
        for (std::int64_t g = 0; g < spec_.groups; ++g) {
          copy_band(shape_, band, x + b * x_block() + g * x_group(), images + b * block + g * group);
        }
      }
      x = images;
    } else {
      x += kLanes * std::int64_t{begin} * shape.stride * shape.in_w;
    }
    const Bf16* dy = dpre + kLanes * std::int64_t{begin} * shape_.out_w;
    const int taps = shape_.in_channels * shape_.kernel_h * shape_.kernel_w;
    const int channel_tiles = (shape_.out_channels + weights_->channels - 1) / weights_->channels;
    const int tap_tiles = (taps + weights_->taps - 1) / weights_->taps;
#pragma omp parallel for collapse(3) schedule(static) num_threads(threads_)
    for (std::int64_t g = 0; g < spec_.groups; ++g) {
      for (int tap = 0; tap < tap_tiles; ++tap) {
        for (int channel = 0; channel < channel_tiles; ++channel) {
          weights_->pairs({shape, &x[g * group].bits, block, &dy[g * dpre_group()].bits, dpre_block(), shape_.out_plane,
                           static_cast<int>(blocks), a.parameter_gradients[0] + g * group_parameters(), !piece.sets},
                          channel, tap);
        }
      }
    }
  }

  // The same with input channels in the lanes.
  void add_outer_piece(const BackwardArguments& a, const Bf16* dpre, std::int64_t blocks, const Piece& piece) const {
    const Bf16* x = a.x.bf16();
    const Bf16* dy = dpre + kLanes * std::int64_t{piece.begin} * shape_.out_w;
    const Band band = band_of(shape_, piece.begin, piece.end, false);
    float* images = outer_x_.in(a.workspace);
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_)
    for (std::int64_t b = 0; b < blocks; ++b) {
      for (std::int64_t g = 0; g < spec_.groups; ++g) {
        copy_band_outer(shape_, band, x + b * x_block() + g * x_group(), width_,
                        images + (b * spec_.groups + g) * outer_size_);
      }
    }
    const int row_tiles = (shape_.out_channels + outer_->rows - 1) / outer_->rows;
    const int vector_tiles = outer_vector_tiles(shape_, *outer_);
#pragma omp parallel for collapse(3) schedule(static) num_threads(threads_)
    for (std::int64_t g = 0; g < spec_.groups; ++g) {
      for (int row = 0; row < row_tiles; ++row) {
        for (int vector = 0; vector < vector_tiles; ++vector) {
          outer_->pairs({band.shape, images + g * outer_size_, spec_.groups * outer_size_, width_,
                         &dy[g * dpre_group()].bits, dpre_block(), shape_.out_plane, static_cast<int>(blocks),
                         a.parameter_gradients[0] + g * group_parameters(), !piece.sets},
                        row, vector);
        }
      }
    }
  }

  void bias_gradient(const BackwardArguments& a, const Bf16* dpre, std::int64_t count, bool is_first) const {
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t o = 0; o < spec_.output_channels; ++o) {
      float total = is_first ? 0.0F : a.parameter_gradients[1][o];
      for (std::int64_t b = 0; b < count; ++b) {
        total += kernels_.sum_bf16(&dpre[b * dpre_block() + o * kLanes * shape_.out_plane].bits, shape_.out_plane);
      }
      a.parameter_gradients[1][o] = total;
    }
  }

  const lanes::ConvKernels& kernels_;
  ConvShape shape_;
  std::vector<DataPhase> phases_;
  ConvShape data_shape_{};  // of all phases
  lanes::ForwardTile forward_;
  const lanes::ForwardTile* data_tile_ = nullptr;
  const lanes::WeightsTile* weights_ = nullptr;  // or
  const lanes::OuterTile* outer_ = nullptr;
  std::int64_t width_ = 0;
  std::int64_t outer_size_ = 0;
  int threads_;
  AmxDirections<Bf16> amx_;
  WinogradDirections<Bf16> winograd_;
  int piece_rows_ = 0;
  std::int64_t piece_blocks_ = 0;
  bool copies_x_ = false;
  std::int64_t band_size_ = 0;
  Workspace::Part<float> packed_, bands_, outer_x_, sums_;
  Workspace::Part<Bf16> rounded_, piece_, dpre_;
};

}  // namespace

std::unique_ptr<BlockConv> make_lanes_bf16_conv(const ConvSpec& spec, const LanesConvTiles& tiles) {
  return std::make_unique<LanesBf16Conv>(spec, tiles);
}

}  // namespace ddp
