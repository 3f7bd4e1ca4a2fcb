// Normalisation within samples (backend/ops/sample_norm.h): a block for some sets, whose threads divide the values of a
// set among them, and the gradients of the parameters by channel, in an order that depends on shapes only.
#include "backend/arithmetic.h"
#include "backend/cuda/code/rows.cuh"
#include "backend/cuda/norm/norm.h"
#include "backend/workspace.h"

namespace ddp::cuda {
namespace {

// How values are numbered: value e of set s.
struct Sets {
  std::uint32_t count;      // of sets
  std::uint32_t elements;   // of a set
  std::uint32_t channels;   // of a sample
  std::uint32_t positions;  // of a sample
  std::uint32_t groups;     // 0: a set is the channels of a position
  bool contiguous;          // whether the channels of a position are

  __device__ std::uint32_t group_channels() const { return channels / groups; }
  __device__ std::uint32_t channel(std::uint32_t set, std::uint32_t e) const {
    if (groups == 0) return e;
    return set % groups * group_channels() + (contiguous ? e % group_channels() : e / positions);
  }
  __device__ std::size_t place(std::uint32_t set, std::uint32_t e) const {
    const std::uint32_t of_sample = groups == 0 ? positions : groups;
    const std::size_t sample = static_cast<std::size_t>(set / of_sample) * channels * positions;
    const std::uint32_t position = groups == 0 ? set % of_sample : contiguous ? e / group_channels() : e % positions;
    const std::uint32_t c = channel(set, e);
    return sample + (contiguous ? position * channels + c : c * positions + position);
  }
  // The set of a channel in a row (Note [Rows and channels]).
  __device__ std::uint32_t set_of(std::uint32_t row, std::uint32_t c) const {
    return groups == 0 ? row : row / positions * groups + c / group_channels();
  }
};

struct Coefficients {
  const float* weight;
  const float* bias;
  float* means;  // [2][sets]: means, then 1 / sqrt(variance + epsilon)
  float epsilon;
};

// Adjacent threads take adjacent sets along x and values along y.
__device__ inline std::uint32_t own_set() { return blockIdx.x * blockDim.x + threadIdx.x; }

// The sum over the lines of a block, for all of them.
__device__ inline Sums sum_lines(Sums (&tree)[1][kThreads], const Sums& own) {
  __syncthreads();
  tree[0][threadIdx.y * blockDim.x + threadIdx.x] = own;
  merge_lines(tree, added);
  return tree[0][threadIdx.x];
}

template <class T>
__global__ void sample_norm_forward_kernel(const Sets sets, const Coefficients n, const T* x, T* y) {
  __shared__ Sums tree[1][kThreads];
  const std::uint32_t set = own_set();
  // All threads of a block take part in its sums.
  const std::uint32_t elements = set < sets.count ? sets.elements : 0;
  const float share = 1.0F / static_cast<float>(sets.elements);
  Sums own{0.0F, 0.0F};
  for (std::uint32_t e = threadIdx.y; e < elements; e += blockDim.y) own.first += get(x, sets.place(set, e));
  const float mean = sum_lines(tree, own).first * share;
  own = {0.0F, 0.0F};
  for (std::uint32_t e = threadIdx.y; e < elements; e += blockDim.y) {
    const float away = get(x, sets.place(set, e)) - mean;
    own.first += away;
    own.second += away * away;
  }
  // The sum of deviations corrects the rounded mean.
  const Sums all = sum_lines(tree, own);
  const float rest = all.first * share;
  const float variance = all.second * share - rest * rest;
  const float inverse = 1.0F / sqrtf((variance < 0.0F ? 0.0F : variance) + n.epsilon);
  if (elements > 0 && threadIdx.y == 0) {
    n.means[set] = mean + rest;
    n.means[sets.count + set] = inverse;
  }
  for (std::uint32_t e = threadIdx.y; e < elements; e += blockDim.y) {
    const std::size_t place = sets.place(set, e);
    const std::uint32_t c = sets.channel(set, e);
    put(y, place, (get(x, place) - mean - rest) * inverse * n.weight[c] + n.bias[c]);
  }
}

template <class T>
__global__ void sample_norm_backward_kernel(const Sets sets, const Coefficients n, const T* x, const T* dy, T* dx) {
  __shared__ Sums tree[1][kThreads];
  const std::uint32_t set = own_set();
  const std::uint32_t elements = set < sets.count ? sets.elements : 0;
  const float mean = elements > 0 ? n.means[set] : 0.0F;
  const float inverse = elements > 0 ? n.means[sets.count + set] : 0.0F;
  Sums own{0.0F, 0.0F};
  for (std::uint32_t e = threadIdx.y; e < elements; e += blockDim.y) {
    const std::size_t place = sets.place(set, e);
    const float gradient = get(dy, place) * n.weight[sets.channel(set, e)];
    own.first += gradient;
    own.second += gradient * (get(x, place) - mean);
  }
  const Sums all = sum_lines(tree, own);
  const float share = 1.0F / static_cast<float>(sets.elements);
  const float offset = all.first * share;
  const float slope = all.second * share * inverse * inverse;
  for (std::uint32_t e = threadIdx.y; e < elements; e += blockDim.y) {
    const std::size_t place = sets.place(set, e);
    const float gradient = get(dy, place) * n.weight[sets.channel(set, e)];
    put(dx, place, inverse * (gradient - offset - slope * (get(x, place) - mean)));
  }
}

// Sums of dy, and of dy times the normalised x, over chunks of rows: partial [chunks][2][channels].
template <class T, class A>
__global__ void sample_norm_sums_kernel(const Rows rows, const Tiling tiling, const Sets sets, const float* means,
                                        const T* x, const T* dy, float* partial) {
  constexpr unsigned kWidth = A::kWidth;
  __shared__ Sums tree[kWidth][kThreads];
  const std::uint32_t channel = tiling.channel(kWidth);
  Sums sums[kWidth] = {};
  if (channel < rows.channels) {
    for (std::uint32_t row = tiling.first_row(); row < tiling.end_row(rows); row += blockDim.y) {
      const std::size_t place = A::place(rows, row, channel);
      float values[kWidth];
      float gradient[kWidth];
      get_some(x, place, values);
      get_some(dy, place, gradient);
      for (unsigned j = 0; j < kWidth; ++j) {
        const std::uint32_t set = sets.set_of(row, channel + j);
        sums[j].first += gradient[j];
        sums[j].second += gradient[j] * ((values[j] - means[set]) * means[sets.count + set]);
      }
    }
  }
  put_chunk_sums(rows, tiling, tree, sums, channel, partial);
}

// Block of kChunkColumns x kChunkLines: sums over chunks.
__global__ void __launch_bounds__(kChunkThreads)
    sample_norm_parameters_kernel(const Rows rows, const Tiling tiling, const float* partial, float* weight,
                                  float* bias) {
  __shared__ Sums tree[1][kChunkThreads];
  const std::uint32_t channel = blockIdx.x * kChunkColumns + threadIdx.x;
  const Sums all = sum_chunks(rows, tiling, tree, channel, partial);
  if (threadIdx.y != 0 || channel >= rows.channels) return;
  bias[channel] = all.first;
  weight[channel] = all.second;
}

class CudaSampleNorm final : public Op {
 public:
  CudaSampleNorm(const CudaContext& context, const SampleNormSpec& spec, Layout layout)
      : context_(context), spec_(spec), rows_(rows_of(spec.batch, spec.shape, layout)) {
    const auto u32 = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
    const bool over_channels = spec.over == NormOver::channels;
    sets_ = {u32(spec.batch * spec.sets()),
             u32(spec.set_elements()),
             u32(spec.shape.channels),
             u32(spec.shape.height * spec.shape.width),
             over_channels ? 0 : u32(spec.groups),
             rows_.positions == 0};
    // In the plain layout the values of a position's channels are far apart, those of adjacent positions are not.
    if (over_channels && !sets_.contiguous) threads_.x = kSetsBeside;
    while (threads_.x * threads_.y < kThreads && threads_.y < sets_.elements) threads_.y *= 2;
    blocks_ = dim3((sets_.count + threads_.x - 1) / threads_.x);
    partial_ = space_.add<float>(chunk_sum_elements(context.element(), rows_));
    means_ = space_.add<float>(2 * spec.batch * spec.sets());
  }

  OpTraits traits() const override {
    return {.saved_bytes = static_cast<std::size_t>(2 * spec_.batch * spec_.sets()) * sizeof(float),
            .workspace_bytes = space_.bytes(),
            .backward_reads_inputs = {0}};
  }

  void forward(const ForwardArguments& a) override {
    if (sets_.count == 0) return;
    // An evaluation may come without saved memory.
    const Coefficients n = coefficients(a.parameters, a.training ? as<float>(a.saved) : means_.in(a.workspace));
    with_element(context_.element(), [&](auto zero) {
      using T = decltype(zero);
      launch(context_.stream, blocks_, threads_, sample_norm_forward_kernel<T>, sets_, n, as<T>(a.x().data()),
             as<T>(a.y.data()));
    });
  }

  void backward(const BackwardArguments& a) override {
    const Coefficients n = coefficients(a.parameters, as<float>(a.saved));
    float* partial = partial_.in(a.workspace);
    with_rows(context_.element(), rows_, [&](auto zero, auto access) {
      using T = decltype(zero);
      using A = decltype(access);
      const Tiling tiling(rows_, A::kWidth);
      launch(context_.stream, tiling.blocks(), tiling.threads(), sample_norm_sums_kernel<T, A>, rows_, tiling, sets_,
             static_cast<const float*>(n.means), as<T>(a.x().data()), as<T>(a.dy.data()), partial);
      launch(context_.stream, chunk_blocks(rows_.channels), dim3(kChunkColumns, kChunkLines),
             sample_norm_parameters_kernel, rows_, tiling, static_cast<const float*>(partial), a.parameter_gradients[0],
             a.parameter_gradients[1]);
      if (sets_.count == 0) return;
      launch(context_.stream, blocks_, threads_, sample_norm_backward_kernel<T>, sets_, n, as<T>(a.x().data()),
             as<T>(a.dy.data()), as<T>(a.dx().data()));
    });
  }

 private:
  static constexpr unsigned kSetsBeside = 32;

  Coefficients coefficients(const ArgumentList<const float*>& parameters, float* means) const {
    return {parameters[0], parameters[1], means, spec_.epsilon};
  }

  const CudaContext& context_;
  SampleNormSpec spec_;
  Rows rows_;
  Sets sets_{};
  dim3 threads_{1, 1};
  dim3 blocks_;
  Workspace space_;
  Workspace::Part<float> partial_;
  Workspace::Part<float> means_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const SampleNormSpec& spec, Layout layout) {
  return std::make_unique<CudaSampleNorm>(context, spec, layout);
}

}  // namespace ddp::cuda
