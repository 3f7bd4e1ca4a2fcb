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

// Blocks of 16 samples whose gradients are processed together: few enough to stay in the cache. Like the two constants
// below, it determines the order of additions, so it must not depend on the number of threads.
constexpr std::int64_t kChunk = 4;
// The values of opened gradients, before ReLU and pooling, that stay in the second-level cache of one core.
constexpr std::int64_t kOpened = 192 * 1024;
// The most pixels of planes that are read in place by windows of single pixels. Of larger ones, rows are copied, since those of
// all channels together are too many streams of memory.
constexpr std::int64_t kInPlace = 1024;
// Positions over which a weight gradient is summed before the sums over lanes, which cost about as much as ten
// positions.
constexpr std::int64_t kPiece = 196;

class LanesConv final : public BlockConv {
 public:
  LanesConv(const ConvSpec& spec, const LanesConvTiles& tiles)
      : BlockConv(spec),
        kernels_(lanes::conv_kernels()),
        shape_(forward_shape(spec)),
        phases_(data_phases(spec)),
        forward_(direct_tile(tiles.forward, false)),
        threads_(omp_get_max_threads()),
        amx_(spec, tiles, threads_),
        winograd_(spec, tiles, threads_) {
    if (tiles.weights.method == WeightTile::Method::direct) weights_ = &kernels_.weights[tiles.weights.index];
    if (tiles.weights.method == WeightTile::Method::outer) outer_ = &outer_tile(tiles.weights.index);
    if (amx_.has_weights()) chunk_ = amx_.most_blocks();
    const std::int64_t positions = shape_.out_plane;
    const bool single_pixels = of_single_pixels(spec);
    exchanged_ = outer_ != nullptr && single_pixels && shape_.out_channels < shape_.in_channels;
    in_place_ = single_pixels && positions <= kInPlace;
    piece_rows_ = static_cast<int>(std::clamp<std::int64_t>(kPiece / shape_.out_w, 1, shape_.out_h));
    piece_blocks_ = std::clamp<std::int64_t>(kPiece / positions, 1, kChunk);
    // One thread takes no more than stay in its cache: whole pieces, in the same order as several threads.
    if (spec.relu && threads_ == 1 && !winograd_.has_weights() && !amx_.has_weights() && kChunk % piece_blocks_ == 0) {
      while (chunk_ > piece_blocks_ && chunk_ * dpre_block() > kOpened) chunk_ -= piece_blocks_;
    }
    std::int64_t packed_data = 0;
    std::int64_t band = band_elements(band_of(shape_, 0, band_rows(shape_), false));
    if (spec.input_gradient) {
      data_tile_ = &direct_tile(tiles.data.value(), false);
      for (const DataPhase& phase : phases_) {
        packed_data += spec.groups * packed_weights(phase.shape, data_tile_->channels);
      }
      data_shape_ = all_phases(phases_);
      const int rows = std::max(band_rows(data_shape_), single_pixels ? piece_rows_ : 0);
      band = std::max(band, band_elements(band_of(data_shape_, 0, rows, false)));
      both_ = threads_ == 1 && single_pixels && !in_place_ && !winograd_.has_weights() && !winograd_.has_data() &&
              !amx_.has_data() && !amx_.has_weights();
    }
    std::int64_t piece = band_elements(band_of(shape_, 0, piece_rows_, false));
    if (outer_ != nullptr) {
      const ConvShape whole = exchanged_ ? exchanged(piece_rows_, 0) : shape_;
      width_ = outer_width(whole, *outer_);
      piece = outer_elements(band_of(whole, 0, piece_rows_, false), width_, Element::fp32);
    }
    if (winograd_.has_weights() || amx_.has_weights()) piece = 0;
    const std::int64_t packed_forward =
        winograd_.has_forward() || amx_.has_forward() ? 0 : spec.groups * packed_weights(shape_, forward_.channels);
    if (winograd_.has_data() || amx_.has_data()) packed_data = 0;
    band = std::max({band, amx_.scratch_elements(), winograd_.scratch_elements()});
    Workspace layout;
    packed_ =
        layout.add<float>(std::max({packed_forward, packed_data, amx_.packed_elements(), winograd_.packed_elements()}));
    band_size_ = round_up(band, kLanes);
    bands_ = layout.add<float>((both_ ? spec.groups : threads_) * band_size_);
    piece_ = layout.add<float>(piece_blocks_ * spec.groups * piece);
    const std::int64_t opened = spec.relu ? std::min(chunk_, sample_blocks(spec.batch)) : 0;
    dpre_ = layout.add<float>(opened * dpre_block());
    plane_sums_ = layout.add<float>(spec.bias ? opened * spec.output_channels : 0);
    sums_ = layout.add<float>(std::max(winograd_.sums_elements(), amx_.sums_elements()));
    workspace_bytes_ = layout.bytes();
  }

  std::int64_t forward_blocks() const override { return std::max<std::int64_t>(threads_, winograd_.forward_blocks()); }
  std::int64_t backward_blocks() const override { return chunk_; }

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
    const std::int64_t group_weights = packed_weights(shape_, forward_.channels);
    for (std::int64_t g = 0; g < spec_.groups; ++g) {
      ddp::pack_forward(shape_, a.parameters[0] + g * group_parameters(), forward_.channels,
                        packed + g * group_weights);
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
    const std::int64_t group_weights = packed_weights(shape_, forward_.channels);
    const std::int64_t row = kLanes * spec_.output().width;
    auto* mask = static_cast<std::uint16_t*>(static_cast<void*>(a.saved));
    const bool single_rows = forward_.rows == 1;
    each_band(shape_, sample_blocks(a.active), spec_.groups, threads_,
              [&](std::int64_t b, std::int64_t g, int begin, int end) {
                const float* from = a.x.fp32() + b * x_block() + g * x_group();
                float* image = band_image(a.workspace);
                const Band band = in_place_ ? rows_of(shape_, begin, end) : band_of(shape_, begin, end, single_rows);
                if (!in_place_) copy_band(shape_, band, from, image);
                const std::int64_t at =
                    b * y_block() + g * y_block() / spec_.groups + (spec_.average_pool ? begin / 2 : begin) * row;
                const lanes::ConvForward kernel = forward_kernel(forward_, band.shape.stride, spec_.average_pool);
                // There are four 16-bit masks for 16 results.
                kernel(band.shape, in_place_ ? from + row_offset(shape_, begin) : image, packed + g * group_weights,
                       spec_.bias ? a.parameters[1] + g * shape_.out_channels : nullptr,
                       lanes::least_result(spec_.relu), a.y.fp32() + at, spec_.average_pool ? mask + at / 4 : nullptr,
                       0, end - begin);
              });
  }

  void begin_backward(const BackwardArguments& a) override {
    if (data_tile_ != nullptr) pack_data_weights(a);
  }

  void backward_part(const BackwardArguments& a, bool is_first, bool is_last) override {
    const std::int64_t count = sample_blocks(a.active);
    const float* dpre = open_gradient(a, count);
    if (data_tile_ != nullptr && !both_) data_gradient(a, dpre, count);
    if (winograd_.has_weights()) {
      winograd_.add_weights(a.x.fp32(), dpre, count, !is_first, is_last ? a.parameter_gradients[0] : nullptr,
                            sums_.in(a.workspace));
    } else if (amx_.has_weights()) {
      amx_.add_weights(a.x.fp32(), dpre, count, !is_first, is_last ? a.parameter_gradients[0] : nullptr,
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

  // The gradient before ReLU and pooling; dy itself if there is neither.
  const float* open_gradient(const BackwardArguments& a, std::int64_t count) const {
    const std::int64_t plane = kLanes * spec_.output().height * spec_.output().width;
    if (!spec_.relu) return a.dy.fp32();
    float* dpre = dpre_.in(a.workspace);
    const std::int64_t planes = count * spec_.output_channels;
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t p = 0; p < planes; ++p) {
      float* const to = dpre + p * kLanes * shape_.out_plane;
      open_plane(a, p * plane, plane, to);
      if (spec_.bias) plane_sums_.in(a.workspace)[p] = kernels_.sum(to, shape_.out_plane);
    }
    return dpre;
  }

  // The same for one plane of the output, `plane` elements from `at` on.
  void open_plane(const BackwardArguments& a, std::int64_t at, std::int64_t plane, float* to) const {
    const float* dy = a.dy.fp32() + at;
    if (spec_.average_pool) {
      const auto* mask = static_cast<const std::uint16_t*>(static_cast<const void*>(a.saved));
      kernels_.unpool(dy, mask + at / 4, to, static_cast<int>(spec_.output().height),
                      static_cast<int>(spec_.output().width), shape_.out_w);
    } else if (spec_.relu) {
      lanes::elementwise_kernels().fp32.backward[static_cast<std::size_t>(Activation::relu)](plane, a.y.fp32() + at, dy,
                                                                                             to, nullptr);
    }
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
    for (const DataPhase& phase : phases_) {
      for (std::int64_t g = 0; g < spec_.groups; ++g) {
        pack_data(spec_, phase, a.parameters[0] + g * group_parameters(), data_tile_->channels, packed);
        packed += packed_weights(phase.shape, data_tile_->channels);
      }
    }
  }

  void data_gradient(const BackwardArguments& a, const float* dpre, std::int64_t count) const {
    if (winograd_.has_data()) {
      winograd_.data_gradient(a.parameters[0], dpre, a.dx.fp32(), count, memory(a.workspace));
      return;
    }
    if (amx_.has_data()) {
      amx_.data_gradient(dpre, a.dx.fp32(), count, memory(a.workspace));
      return;
    }
    each_band(data_shape_, count, spec_.groups, threads_, [&](std::int64_t b, std::int64_t g, int begin, int end) {
      const float* from = dpre + b * dpre_block() + g * dpre_group();
      float* image = band_image(a.workspace);
      const Band band = in_place_ ? rows_of(data_shape_, begin, end) : band_of(data_shape_, begin, end, true);
      if (!in_place_) copy_band(data_shape_, band, from, image);
      const float* packed = packed_.in(a.workspace);
      for (const DataPhase& phase : phases_) {
        const std::int64_t group_weights = packed_weights(phase.shape, data_tile_->channels);
        data_of_band(phase, shape_in(band, phase, begin, end),
                     in_place_ ? from + row_offset(phase.shape, begin) : image, packed + g * group_weights,
                     a.dx.fp32() + b * x_block() + g * x_group(), begin);
        packed += spec_.groups * group_weights;
      }
    });
  }

  // The rows of the input's gradient from `begin` on, of a phase and a group.
  void data_of_band(const DataPhase& phase, const ConvShape& shape, const float* image, const float* packed, float* dx,
                    int begin) const {
    const lanes::ConvForward kernel = forward_kernel(*data_tile_, 1);
    kernel(shape, image, packed, nullptr, lanes::least_result(false),
           dx + kLanes * (phase.begin + begin * phase.shape.out_row), nullptr, 0, shape.out_h);
  }

  // Rows of a convolution of single pixels, and where they begin, in the planes as they are.
  static Band rows_of(const ConvShape& whole, int begin, int end) {
    Band band{whole, begin, 1};
    band.shape.out_h = end - begin;
    return band;
  }
  static std::int64_t row_offset(const ConvShape& whole, int row) { return kLanes * row * std::int64_t{whole.in_w}; }

  void weight_gradient(const BackwardArguments& a, const float* dpre, std::int64_t count, bool is_first) const {
    for (std::int64_t b = 0; b < count; b += piece_blocks_) {
      const std::int64_t blocks = std::min(piece_blocks_, count - b);
      for (int begin = 0; begin < shape_.out_h; begin += piece_rows_) {
        const Piece piece{blocks, begin, std::min(begin + piece_rows_, shape_.out_h), is_first && b == 0 && begin == 0};
        const float* x = a.x.fp32() + b * x_block();
        const Planes gradient{dpre + b * dpre_block() + kLanes * begin * shape_.out_w, dpre_block(), dpre_group(),
                              shape_.out_plane};
        const Planes dy = both_ ? data_of_piece(a, gradient.first, b, piece) : gradient;
        if (outer_ == nullptr) {
          add_piece(a, x, dy, piece);
        } else {
          add_outer_piece(a, x, dy, piece);
        }
      }
    }
  }

  // Rows [begin, end) of some blocks; `sets` if it is the first of all.
  struct Piece {
    std::int64_t blocks;
    int begin, end;
    bool sets;
  };
  // The rows of a piece: values from one block, group of channels and channel to the next; the last in vectors.
  struct Planes {
    const float* first;
    std::int64_t block, group, plane;
  };

  // The data gradient of a piece of one block; its rows, copied, serve the weight gradient as well, so that memory is read once.
  Planes data_of_piece(const BackwardArguments& a, const float* dy, std::int64_t block, const Piece& piece) const {
    const DataPhase& phase = phases_[0];
    const Band band = band_of(phase.shape, 0, piece.end - piece.begin, true);
    const std::int64_t image_size = band_elements(band);
    float* images = bands_.in(a.workspace);
    for (std::int64_t g = 0; g < spec_.groups; ++g) {
      float* image = images + g * image_size;
      copy_band(phase.shape, band, dy + g * dpre_group(), image);
      data_of_band(phase, band.shape, image,
                   packed_.in(a.workspace) + g * packed_weights(phase.shape, data_tile_->channels),
                   a.dx.fp32() + block * x_block() + g * x_group(), piece.begin);
    }
    return {images, 0, image_size, band.shape.source_plane() / kLanes};
  }

  // Calls copy(block, group, image) for the images of a piece, `size` floats each, which it returns.
  template <class F>
  const float* copy_images(const BackwardArguments& a, const Piece& piece, std::int64_t size, F copy) const {
    float* images = piece_.in(a.workspace);
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_)
    for (std::int64_t b = 0; b < piece.blocks; ++b) {
      for (std::int64_t g = 0; g < spec_.groups; ++g) copy(b, g, images + (b * spec_.groups + g) * size);
    }
    return images;
  }

  // The contribution of a piece to the weight gradient.
  void add_piece(const BackwardArguments& a, const float* x, const Planes& dy, const Piece& piece) const {
    const Band band = band_of(shape_, piece.begin, piece.end, false);
    const std::int64_t size = band_elements(band);
    const float* images = copy_images(a, piece, size, [&](std::int64_t b, std::int64_t g, float* image) {
      copy_band(shape_, band, x + b * x_block() + g * x_group(), image);
    });
    const int taps = shape_.in_channels * shape_.kernel_h * shape_.kernel_w;
    const int row_tiles = (shape_.out_channels + weights_->channels - 1) / weights_->channels;
    const int column_tiles = (taps + weights_->taps - 1) / weights_->taps;
#pragma omp parallel for collapse(3) schedule(static) num_threads(threads_)
    for (std::int64_t g = 0; g < spec_.groups; ++g) {
      for (int column = 0; column < column_tiles; ++column) {
        for (int row = 0; row < row_tiles; ++row) {
          weights_->kernel(
              {band.shape, images + g * size, spec_.groups * size, dy.first + g * dy.group, dy.block, dy.plane,
               static_cast<int>(piece.blocks), a.parameter_gradients[0] + g * group_parameters(), !piece.sets},
              row, column);
        }
      }
    }
  }

  // The shape of the image if input and output channels are exchanged: so many rows of planes that are `plane` vectors apart.
  ConvShape exchanged(int rows, std::int64_t plane) const {
    ConvShape s = shape_;
    std::swap(s.in_channels, s.out_channels);
    s.in_h = s.out_h = rows;
    s.source_gap = static_cast<int>(plane - std::int64_t{rows} * s.in_w);
    return s;
  }

  // The same with channels in the lanes: those of the input, or those of the output if they are fewer.
  void add_outer_piece(const BackwardArguments& a, const float* x, const Planes& dy, const Piece& piece) const {
    const int rows = piece.end - piece.begin;
    const std::int64_t x_plane = std::int64_t{shape_.in_h} * shape_.in_w;
    const Planes image{x + kLanes * piece.begin * shape_.in_w, x_block(), x_group(), x_plane};
    const ConvShape whole = exchanged_ ? exchanged(rows, dy.plane) : shape_;
    const Band band = exchanged_ ? band_of(whole, 0, rows, false) : band_of(whole, piece.begin, piece.end, false);
    const Planes in_lanes = exchanged_ ? dy : Planes{x, x_block(), x_group(), x_plane};
    const Planes& scalars = exchanged_ ? image : dy;
    const std::int64_t size = outer_elements(band, width_, Element::fp32);
    const float* images = copy_images(a, piece, size, [&](std::int64_t b, std::int64_t g, float* to) {
      copy_band_outer(whole, band, in_lanes.first + b * in_lanes.block + g * in_lanes.group, width_, to);
    });
    const int row_tiles = (whole.out_channels + outer_->rows - 1) / outer_->rows;
    const int vector_tiles = outer_vector_tiles(whole, *outer_);
#pragma omp parallel for collapse(3) schedule(static) num_threads(threads_)
    for (std::int64_t g = 0; g < spec_.groups; ++g) {
      for (int vector = 0; vector < vector_tiles; ++vector) {
        for (int row = 0; row < row_tiles; ++row) {
          outer_->kernel({band.shape, images + g * size, spec_.groups * size, width_, scalars.first + g * scalars.group,
                          scalars.block, scalars.plane, static_cast<int>(piece.blocks),
                          a.parameter_gradients[0] + g * group_parameters(), !piece.sets, exchanged_},
                         row, vector);
        }
      }
    }
  }

  void bias_gradient(const BackwardArguments& a, const float* dpre, std::int64_t count, bool is_first) const {
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t o = 0; o < spec_.output_channels; ++o) {
      float total = is_first ? 0.0F : a.parameter_gradients[1][o];
      for (std::int64_t b = 0; b < count; ++b) {
        total += spec_.relu ? plane_sums_.in(a.workspace)[b * spec_.output_channels + o]
                            : kernels_.sum(dpre + b * dpre_block() + o * kLanes * shape_.out_plane, shape_.out_plane);
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
  bool exchanged_ = false;  // the outer tile has output channels in the lanes
  int threads_;
  AmxDirections<float> amx_;  // for tf32
  WinogradDirections<float> winograd_;
  std::int64_t chunk_ = kChunk;
  bool in_place_ = false;
  bool both_ = false;  // gradients are computed together
  int piece_rows_ = 0;
  std::int64_t piece_blocks_ = 0;
  std::int64_t band_size_ = 0;
  Workspace::Part<float> packed_, bands_, piece_, dpre_, sums_;
  Workspace::Part<float> plane_sums_;  // of the opened gradients
};

}  // namespace

std::unique_ptr<BlockConv> make_lanes_conv(const ConvSpec& spec, const LanesConvTiles& tiles) {
  return std::make_unique<LanesConv>(spec, tiles);
}

}  // namespace ddp
