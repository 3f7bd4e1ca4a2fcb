// Linear layers in lanes16 on bf16 activations, with kernels that multiply pairs of bf16 numbers: of two inputs forward, of
// two outputs for the data gradient, of two samples for the weight gradient. Sums are fp32.
//
// The kernels are those of convolutions of single pixels. The blocks of 16 samples stand side by side as the pixels of one
// row, so that each weight that is read is multiplied by several blocks.
#include <omp.h>

#include <algorithm>

#include "backend/cpu/conv/conv.h"
#include "backend/cpu/conv/tiles/conv_kernels.h"
#include "backend/cpu/conv/tiles/direct_gradient.h"
#include "backend/cpu/conv/tiles/shapes.h"
#include "backend/cpu/device/planes.h"
#include "backend/cpu/linear/linear.h"
#include "backend/cpu/pointwise/elementwise_kernels.h"
#include "backend/workspace.h"

namespace ddp {
namespace {

using lanes::ConvShape;

// The most 4-byte values of an image, which fit half of a second-level cache. For the weight gradient it determines the
// order of additions, so it must not depend on the number of threads.
constexpr std::int64_t kBlocksImage = 128 * 1024;

std::int64_t feature_pairs(std::int64_t features) { return (features + 1) / 2; }

// Products of a row of blocks with a matrix of weights.
class BlocksProduct {
 public:
  BlocksProduct(std::int64_t inputs, std::int64_t outputs, std::int64_t blocks, int threads)
      : inputs_(inputs),
        outputs_(outputs),
        blocks_(std::min(std::max<std::int64_t>(1, kBlocksImage / (kLanes * feature_pairs(inputs))),
                         (blocks + threads - 1) / threads)),
        tile_(cheapest_tile(blocks_)),
        single_(cheapest_tile(1)) {}

  // In floats.
  std::int64_t image_elements() const { return blocks_ * kLanes * feature_pairs(inputs_); }
  std::int64_t packed_elements() const {
    return std::max(packed_weights(shape(1), tile().channels), packed_weights(shape(1), single().channels));
  }

  // pack(channels, packed) packs the weights for tiles of so many channels; the rest as in ConvForward.
  template <class Pack>
  void run(const Bf16* x, std::int64_t blocks, const float* bias, bool relu, Bf16* y, int threads, Pack pack,
           float* packed, float* images) const {
    if (blocks == 0) return;
    const std::int64_t rows = (blocks + blocks_ - 1) / blocks_;
    const lanes::ForwardTile& used = blocks / rows < tile().columns ? single() : tile();
    pack(used.channels, packed);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t first = row * blocks / rows;
      const std::int64_t count = (row + 1) * blocks / rows - first;
      float* image = images + omp_get_thread_num() * image_elements();
      copy(x + first * kLanes * inputs_, count, image);
      forward_kernel(used, 1)(shape(count), image, packed, bias, lanes::least_result(relu),
                              y + first * kLanes * outputs_, nullptr, 0, 1);
    }
  }

 private:
  const lanes::ForwardTile& tile() const { return lanes::pair_kernels().forward[tile_]; }
  const lanes::ForwardTile& single() const { return lanes::pair_kernels().forward[single_]; }

  // A shape of pairs of inputs, with the results of a block behind one another.
  ConvShape shape(std::int64_t blocks) const {
    const auto width = static_cast<int>(blocks);
    return {.in_channels = static_cast<int>(feature_pairs(inputs_)),
            .in_h = 1,
            .in_w = width,
            .border_h = 0,
            .border_w = 0,
            .pad_top = 0,
            .pad_left = 0,
            .out_channels = static_cast<int>(outputs_),
            .out_h = 1,
            .out_w = width,
            .kernel_h = 1,
            .kernel_w = 1,
            .stride = 1,
            .out_plane = 1,
            .out_row = outputs_ * width,
            .out_step = outputs_};
  }

  // The index of a direct one, by the cost model of convolutions.
  int cheapest_tile(std::int64_t blocks) const {
    const ConvSpec conv{
        .batch = kLanes, .input = {inputs_, 1, blocks}, .output_channels = outputs_, .input_gradient = false};
    return lanes_fixed_tiles(conv, Element::bf16).forward.index;
  }

  void copy(const Bf16* x, std::int64_t blocks, float* image) const {
    const auto& pair = lanes::elementwise_kernels().pair_bf16;
    for (std::int64_t i = 0; i < inputs_; i += 2) {
      for (std::int64_t b = 0; b < blocks; ++b, image += kLanes) {
        const Bf16* lower = x + (b * inputs_ + i) * kLanes;
        pair(kLanes, &lower->bits, i + 1 < inputs_ ? &lower[kLanes].bits : nullptr, image);
      }
    }
  }

  std::int64_t inputs_, outputs_;
  std::int64_t blocks_;  // of a row
  int tile_;
  int single_;  // for rows of fewer blocks than the tile's columns
};

class LanesBf16Linear final : public Op {
 public:
  explicit LanesBf16Linear(const LinearSpec& spec)
      : spec_(spec),
        kernels_(lanes::gradient_kernels()),
        threads_(omp_get_max_threads()),
        conv_{.batch = spec.batch, .input = {spec.inputs, 1, 1}, .output_channels = spec.outputs},
        pixel_(forward_shape(conv_)),
        phases_(data_phases(conv_)),
        forward_(spec.inputs, spec.outputs, sample_blocks(spec.batch), threads_),
        data_(spec.outputs, spec.inputs, sample_blocks(spec.batch), threads_),
        gradient_(conv_, cheapest_outer(), threads_, nullptr, blocks_of_piece()) {
    Workspace layout;
    rounded_ = layout.add<Bf16>(spec.inputs * spec.outputs);
    packed_ = layout.add<float>(std::max(forward_.packed_elements(), data_.packed_elements()));
    images_ = layout.add<float>(std::max(
        {threads_ * forward_.image_elements(), threads_ * data_.image_elements(), gradient_.memory_elements()}));
    dpre_ = layout.add<Bf16>(spec.relu ? stored_elements(spec.batch, {spec.outputs, 1, 1}, Layout::lanes16) : 0);
    workspace_bytes_ = layout.bytes();
  }

  OpTraits traits() const override {
    return {.workspace_bytes = workspace_bytes_, .backward_reads_inputs = {0}, .backward_reads_y = spec_.relu};
  }

  void forward(const ForwardArguments& a) override {
    const Bf16* weights = rounded_weights(a.parameters[0], a.workspace);
    const auto pack = [&](int tile, float* packed) { pack_forward(pixel_, weights, tile, packed); };
    forward_.run(a.x().bf16(), sample_blocks(a.active), spec_.bias ? a.parameters[1] : nullptr, spec_.relu, a.y.bf16(),
                 threads_, pack, packed_.in(a.workspace), images_.in(a.workspace));
  }

  void backward(const BackwardArguments& a) override {
    const std::int64_t blocks = sample_blocks(a.active);
    const Bf16* dpre = open_gradient(a, blocks);
    if (blocks == 0) std::fill_n(a.parameter_gradients[0], spec_.inputs * spec_.outputs, 0.0F);
    gradient_.add(a.x(), dpre, {blocks, true, true, a.parameter_gradients[0], images_.in(a.workspace)});
    if (spec_.bias) bias_gradient(dpre, blocks, a.parameter_gradients[1]);
    if (!spec_.input_gradient) return;
    const Bf16* weights = rounded_weights(a.parameters[0], a.workspace);
    const auto pack = [&](int tile, float* packed) { pack_data(conv_, phases_[0], weights, tile, packed); };
    data_.run(dpre, blocks, nullptr, false, a.dx().bf16(), threads_, pack, packed_.in(a.workspace),
              images_.in(a.workspace));
    clear_rest(a.dx().bf16(), a.active, spec_.batch, {spec_.inputs, 1, 1}, Layout::lanes16);
  }

 private:
  WeightTile cheapest_outer() const {
    // The shortlist is in the order of cost, but tiles of both kinds are in it.
    for (const WeightTile& tile : lanes_weights_shortlist(conv_, Element::bf16)) {
      if (tile.method == WeightTile::Method::outer) return tile;
    }
    return {WeightTile::Method::outer, 0};
  }
  // The blocks that the weight gradient adds at a time.
  std::int64_t blocks_of_piece() const {
    const std::int64_t width = outer_width(pixel_, outer_tile(cheapest_outer().index));
    const std::int64_t image = outer_elements(band_of(pixel_, 0, 1, false), width, Element::bf16);
    return std::clamp<std::int64_t>(kBlocksImage / image, 1, sample_blocks(spec_.batch));
  }

  const Bf16* rounded_weights(const float* from, std::byte* workspace) const {
    Bf16* to = rounded_.in(workspace);
    lanes::elementwise_kernels().to_bf16(spec_.inputs * spec_.outputs, from, &to->bits);
    return to;
  }

  // The gradient before ReLU; dy itself if there is none.
  const Bf16* open_gradient(const BackwardArguments& a, std::int64_t blocks) const {
    if (!spec_.relu) return a.dy.bf16();
    Bf16* dpre = dpre_.in(a.workspace);
    const std::int64_t block = kLanes * spec_.outputs;
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t b = 0; b < blocks; ++b) {
      lanes::elementwise_kernels().bf16.backward[static_cast<std::size_t>(Activation::relu)](
          block, &a.y.bf16()[b * block].bits, &a.dy.bf16()[b * block].bits, &dpre[b * block].bits, nullptr);
    }
    return dpre;
  }

  void bias_gradient(const Bf16* dpre, std::int64_t blocks, float* db) const {
    for (std::int64_t o = 0; o < spec_.outputs; ++o) {
      float total = 0;
      for (std::int64_t b = 0; b < blocks; ++b) {
        total += kernels_.sum_bf16(&dpre[(b * spec_.outputs + o) * kLanes].bits, 1);
      }
      db[o] = total;
    }
  }

  LinearSpec spec_;
  const lanes::GradientKernels& kernels_;
  int threads_;
  ConvSpec conv_;    // the layer as a convolution of single pixels
  ConvShape pixel_;  // its shape
  std::vector<DataPhase> phases_;
  BlocksProduct forward_, data_;
  DirectGradient<Bf16> gradient_;
  Workspace::Part<Bf16> rounded_, dpre_;
  Workspace::Part<float> packed_, images_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Op> make_lanes_bf16_linear(const LinearSpec& spec) { return std::make_unique<LanesBf16Linear>(spec); }

}  // namespace ddp
