// Depthwise convolution in nhwc, 16 channels of a sample at a time (slab_kernels.h). Other than in lanes16 a batch of fewer than 16
// samples leaves no lane empty, and the layers around it may stay channels-last.
#include <omp.h>

#include <algorithm>
#include <vector>

#include "backend/cpu/conv/depthwise/depthwise.h"
#include "backend/cpu/conv/depthwise/slab_kernels.h"
#include "backend/cpu/conv/tiles/conv_kernels.h"
#include "backend/cpu/conv/tiles/shapes.h"
#include "backend/cpu/isa/instruction_set.h"
#include "backend/workspace.h"

LANES_TABLE(SlabKernels, slab_kernels)

namespace ddp {
namespace {

class NhwcDepthwise final : public Op {
 public:
  explicit NhwcDepthwise(const ConvSpec& spec)
      : spec_(spec),
        kernels_(lanes::slab_kernels()),
        shape_(forward_shape(spec)),
        phases_(data_phases(spec)),
        channels_(spec.input.channels),
        blocks_((channels_ + kLanes - 1) / kLanes),
        taps_(spec.window.elements()),
        border_(spec.input_gradient ? phases_.front().shape.border_w : 0),
        dy_row_(kLanes * (shape_.out_w + 2 * border_)),
        dy_slab_(dy_row_ * shape_.out_h) {
    const int stride = shape_.stride;
    // Slabs of the image have the border of the windows, rows included, those of the gradient the border of the phases' columns.
    const int right = (shape_.out_w - 1) * stride + shape_.kernel_w - shape_.pad_left - shape_.in_w;
    const int below = (shape_.out_h - 1) * stride + shape_.kernel_h - shape_.pad_top - shape_.in_h;
    x_row_ = kLanes * (shape_.pad_left + shape_.in_w + std::max(right, 0));
    x_slab_ = x_row_ * (shape_.pad_top + shape_.in_h + std::max(below, 0));
    const int threads = omp_get_max_threads();
    weights_ = workspace_.add<float>(blocks_ * kLanes * taps_);
    bias_ = workspace_.add<float>(blocks_ * kLanes);
    flipped_ = workspace_.add<float>(blocks_ * kLanes * taps_);
    slabs_ = workspace_.add<float>(threads * (x_slab_ + dy_slab_));
    // As many parts of the samples as make 16 units of work, whatever the number of threads, so that the bits do not depend on it.
    groups_ = std::clamp<std::int64_t>(kUnits / blocks_, 1, spec.batch);
    sums_ = workspace_.add<float>(groups_ * blocks_ * sums_size());
    sample_sums_ = workspace_.add<float>(threads * sums_size());
  }

  OpTraits traits() const override { return {.workspace_bytes = workspace_.bytes(), .backward_reads_inputs = {0}}; }

  void forward(const ForwardArguments& a) override {
    pack_forward_weights(a);
#pragma omp parallel
    {
      const Slabs slabs = begin(a.workspace);
#pragma omp for collapse(2) schedule(static)
      for (std::int64_t n = 0; n < spec_.batch; ++n) {
        for (std::int64_t b = 0; b < blocks_; ++b) {
          copy_image(a.x().fp32(), n, b, slabs);
          kernels_.forward({slabs.x, x_row_, shape_.pad_top, shape_.in_h, shape_.stride, shape_.kernel_h,
                            shape_.kernel_w, weights_.in(a.workspace) + b * kLanes * taps_,
                            bias_.in(a.workspace) + b * kLanes, shape_.out_h, shape_.out_w,
                            a.y.fp32() + n * output_size() + b * kLanes, channels_ * shape_.out_w, channels_,
                            lanes_of(b)});
        }
      }
    }
  }

  void backward(const BackwardArguments& a) override {
    if (spec_.input_gradient) pack_data_weights(a.parameters[0], a.workspace);
#pragma omp parallel
    {
      const Slabs slabs = begin(a.workspace);
#pragma omp for collapse(2) schedule(static)
      for (std::int64_t g = 0; g < groups_; ++g) {
        for (std::int64_t b = 0; b < blocks_; ++b) backward_unit(a, g, b, slabs);
      }
#pragma omp for schedule(static)
      for (std::int64_t b = 0; b < blocks_; ++b) add_groups(a, b);
    }
  }

 private:
  static constexpr std::int64_t kUnits = 16;

  // Memory of a thread. What is not copied stays zero.
  struct Slabs {
    float* x;
    float* dy;
    float* sums;
  };

  std::int64_t sums_size() const { return kLanes * (taps_ + 1); }
  std::int64_t input_size() const { return channels_ * shape_.in_h * shape_.in_w; }
  std::int64_t output_size() const { return channels_ * shape_.out_h * shape_.out_w; }
  int lanes_of(std::int64_t block) const { return static_cast<int>(std::min(kLanes, channels_ - block * kLanes)); }

  Slabs begin(std::byte* workspace) const {
    const int thread = omp_get_thread_num();
    float* slabs = slabs_.in(workspace) + thread * (x_slab_ + dy_slab_);
    std::fill_n(slabs, x_slab_ + dy_slab_, 0.0F);
    return {slabs, slabs + x_slab_, sample_sums_.in(workspace) + thread * sums_size()};
  }

  void copy_image(const float* x, std::int64_t n, std::int64_t block, const Slabs& slabs) const {
    kernels_.copy({x + n * input_size() + block * kLanes, channels_, lanes_of(block), shape_.in_h, shape_.in_w,
                   slabs.x + shape_.pad_top * x_row_ + kLanes * shape_.pad_left, x_row_});
  }

  // [block][tap][16] from [channel][tap], zero beyond the last channel.
  void pack_forward_weights(const ForwardArguments& a) const {
    float* weights = weights_.in(a.workspace);
    float* bias = bias_.in(a.workspace);
    for (std::int64_t c = 0; c < blocks_ * kLanes; ++c) {
      const bool real = c < channels_;
      bias[c] = real && spec_.bias ? a.parameters[1][c] : 0.0F;
      float* to = weights + c / kLanes * kLanes * taps_ + c % kLanes;
      for (std::int64_t t = 0; t < taps_; ++t) to[t * kLanes] = real ? a.parameters[0][c * taps_ + t] : 0.0F;
    }
  }
  // The same for the phases of the data gradient, one after the other in each block.
  void pack_data_weights(const float* weights, std::byte* workspace) const {
    std::fill_n(bias_.in(workspace), blocks_ * kLanes, 0.0F);
    std::vector<float> packed(static_cast<std::size_t>(taps_));
    for (std::int64_t c = 0; c < blocks_ * kLanes; ++c) {
      float* to = flipped_.in(workspace) + c / kLanes * kLanes * taps_ + c % kLanes;
      std::int64_t done = 0;
      for (const DataPhase& phase : phases_) {
        if (c < channels_) pack_data(spec_, phase, weights + c * taps_, 1, packed.data() + done);
        done += std::int64_t{phase.shape.kernel_h} * phase.shape.kernel_w;
      }
      for (std::int64_t t = 0; t < done; ++t)
        to[t * kLanes] = c < channels_ ? packed[static_cast<std::size_t>(t)] : 0.0F;
    }
  }

  // A block of channels of a group of samples.
  void backward_unit(const BackwardArguments& a, std::int64_t group, std::int64_t block, const Slabs& slabs) const {
    float* sums = sums_.in(a.workspace) + (group * blocks_ + block) * sums_size();
    std::fill_n(sums, sums_size(), 0.0F);
    float* dy_inside = slabs.dy + kLanes * border_;
    for (std::int64_t n = group * spec_.batch / groups_; n < (group + 1) * spec_.batch / groups_; ++n) {
      copy_image(a.x().fp32(), n, block, slabs);
      kernels_.copy({a.dy.fp32() + n * output_size() + block * kLanes, channels_, lanes_of(block), shape_.out_h,
                     shape_.out_w, dy_inside, dy_row_});
      kernels_.gradient({slabs.x, x_row_, shape_.pad_top, shape_.in_h, shape_.stride, shape_.kernel_h, shape_.kernel_w,
                         dy_inside, dy_row_, shape_.out_h, shape_.out_w, slabs.sums, slabs.sums + kLanes * taps_});
      for (std::int64_t i = 0; i < sums_size(); ++i) sums[i] += slabs.sums[i];
      if (spec_.input_gradient) data(a, n, block, dy_inside);
    }
  }

  void data(const BackwardArguments& a, std::int64_t n, std::int64_t block, const float* dy) const {
    const float* weights = flipped_.in(a.workspace) + block * kLanes * taps_;
    for (const DataPhase& phase : phases_) {
      const lanes::ConvShape& s = phase.shape;
      kernels_.forward({dy - s.pad_top * dy_row_ - kLanes * s.pad_left, dy_row_, s.pad_top, s.in_h, 1, s.kernel_h,
                        s.kernel_w, weights, bias_.in(a.workspace) + block * kLanes, s.out_h, s.out_w,
                        a.dx().fp32() + n * input_size() + phase.begin * channels_ + block * kLanes,
                        s.out_row * channels_, s.out_step * channels_, lanes_of(block)});
      weights += kLanes * s.kernel_h * s.kernel_w;
    }
  }

  // In the order of the groups.
  void add_groups(const BackwardArguments& a, std::int64_t block) const {
    float* total = sums_.in(a.workspace) + block * sums_size();
    for (std::int64_t g = 1; g < groups_; ++g) {
      const float* other = total + g * blocks_ * sums_size();
      for (std::int64_t i = 0; i < sums_size(); ++i) total[i] += other[i];
    }
    for (std::int64_t lane = 0; lane < lanes_of(block); ++lane) {
      const std::int64_t c = block * kLanes + lane;
      for (std::int64_t t = 0; t < taps_; ++t) a.parameter_gradients[0][c * taps_ + t] = total[t * kLanes + lane];
      if (spec_.bias) a.parameter_gradients[1][c] = total[taps_ * kLanes + lane];
    }
  }

  ConvSpec spec_;
  const lanes::SlabKernels& kernels_;
  lanes::ConvShape shape_;
  std::vector<DataPhase> phases_;
  std::int64_t channels_, blocks_, taps_;
  int border_ = 0;
  std::int64_t x_row_ = 0, x_slab_ = 0, dy_row_ = 0, dy_slab_ = 0;
  std::int64_t groups_ = 1;
  Workspace workspace_;
  Workspace::Part<float> weights_, bias_, flipped_, slabs_, sums_, sample_sums_;
};

}  // namespace

bool nhwc_depthwise_supported(const ConvSpec& spec) {
  return lanes_depthwise_supported(spec) && spec.window.plain() && !spec.average_pool;
}

std::unique_ptr<Op> make_nhwc_depthwise(const ConvSpec& spec) { return std::make_unique<NhwcDepthwise>(spec); }

}  // namespace ddp
