// Optimizers over flat buffers. One block sums each chunk, then the last block sums the chunks, in an order that depends
// only on shapes.
#include "backend/cuda/code/last_block.cuh"
#include "backend/cuda/update/update.cuh"
#include "backend/cuda/update/update.h"
#include "backend/update/matrix_update.h"
#include "optim/rules/update.h"

namespace ddp::cuda {
namespace {

__device__ std::uint32_t squares_ticket;

// For each chunk the sums of squares of the gradient, if it is trained, and of the weights; then the numbers of the step
// if they depend on these.
__global__ void sum_squares_kernel(const UpdateArguments a) {
  __shared__ double tree[kThreads];
  for (std::int64_t c = blockIdx.x; c < a.chunk_count; c += gridDim.x) {
    const UpdateChunk chunk = a.chunks[c];
    double gradient = 0;
    double weights = 0;
    for (std::int64_t i = chunk.begin + threadIdx.x; i < chunk.begin + chunk.count; i += kThreads) {
      gradient += squared(a.gradient[i]);
      weights += squared(a.weights[i]);
    }
    put_sums(tree, a, c, a.control->step > chunk.last_step ? 0 : gradient, weights);
  }
  if (a.settings.clip_norm <= 0 || !is_last_block(&squares_ticket, gridDim.x)) return;
  const double square_sum = sum_over(tree, a, 0, a.chunk_count, 0);
  if (threadIdx.x == 0) *a.numbers = step_numbers(a.settings, *a.control, square_sum);
}

// One thread, where the gradient is not clipped.
__global__ void step_numbers_kernel(const UpdateArguments a) { *a.numbers = step_numbers(a.settings, *a.control, 0); }

// LAMB's moments, and for each chunk the sums of squares of its direction and of the weights.
__global__ void lamb_moments_kernel(const UpdateArguments a) {
  __shared__ double tree[kThreads];
  if (*a.skip != 0) return;
  const StepNumbers numbers = numbers_of(a);
  for (std::int64_t c = blockIdx.x; c < a.chunk_count; c += gridDim.x) {
    const UpdateChunk chunk = a.chunks[c];
    const ElementNumbers n = element_numbers(a.settings, numbers, 1, chunk.decay_scale, 1);
    double direction = 0;
    double weights = 0;
    for (std::int64_t i = chunk.begin + threadIdx.x; i < chunk.begin + chunk.count; i += kThreads) {
      update_moments(n, clipped(n, a.gradient[i]), a.first[i], a.second[i]);
      direction += squared(lamb_direction(n, a.weights[i], a.first[i], a.second[i]));
      weights += squared(a.weights[i]);
    }
    put_sums(tree, a, c, direction, weights);
  }
}

// One block per segment.
__global__ void ratios_kernel(const UpdateArguments a) {
  __shared__ double tree[kThreads];
  for (std::int64_t s = blockIdx.x; s < a.segment_count; s += gridDim.x) {
    const ChunksOfSegment segment = a.segments[s];
    const double weights = sum_over(tree, a, segment.first, segment.count, 1);
    const double other = sum_over(tree, a, segment.first, segment.count, 0);
    if (threadIdx.x == 0) {
      a.ratios[s] = segment.adapt
                        ? trust_ratio(a.settings, numbers_of(a).gradient_scale, segment.decay_scale, weights, other)
                        : 1;
    }
  }
}

template <class Form>
__global__ void update_all_kernel(const PreviousKernel previous, const UpdateArguments a) {
  previous.wait();
  const StepNumbers numbers = numbers_of(a);  // loaded together with what decides
  if (*a.skip != 0) return;
  const ElementNumbers n = element_numbers(a.settings, numbers, a.lr_scale, a.decay_scale, 1);
  const auto count = static_cast<std::size_t>(a.count);
  // Unrolled loops would be longer and load no more at once: the compiler does not know that buffers do not overlap.
#pragma unroll 1
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    update_element<Form>(n, places_at<Form>(a, static_cast<std::int64_t>(i)));
  }
}

template <class Form>
__global__ void update_chunks_kernel(const PreviousKernel previous, const UpdateArguments a) {
  previous.wait();
  if (*a.skip != 0) return;
  const StepNumbers numbers = numbers_of(a);
  for (std::int64_t c = blockIdx.x; c < a.chunk_count; c += gridDim.x) {
    const UpdateChunk chunk = a.chunks[c];
    if (chunk.in_matrix) continue;
    const double ratio = a.settings.layerwise() ? a.ratios[chunk.segment] : 1;
    ElementNumbers n =
        element_numbers(a.settings, numbers_for(numbers, chunk), chunk.lr_scale, chunk.decay_scale, ratio);
    if (numbers.control.step > chunk.last_step) n = frozen(n);
    for (std::int64_t i = chunk.begin + threadIdx.x; i < chunk.begin + chunk.count; i += kThreads) {
      update_element<Form>(n, places_at<Form>(a, i));
    }
  }
}

}  // namespace

void update(cudaStream_t stream, const UpdateArguments& a) {
  if (a.count == 0) return;
  const UpdateSettings& settings = a.settings;
  if (settings.clip_norm > 0 || settings.rule == UpdateRule::lars) {
    launch(stream, blocks_of(a.chunk_count), kThreads, sum_squares_kernel, a);
  }
  if (keeps_numbers(settings) && settings.clip_norm <= 0) launch(stream, 1, 1, step_numbers_kernel, a);
  if (settings.rule == UpdateRule::lamb) launch(stream, blocks_of(a.chunk_count), kThreads, lamb_moments_kernel, a);
  if (settings.layerwise()) launch(stream, blocks_of(a.segment_count), kThreads, ratios_kernel, a);
  if (a.matrices != nullptr) a.matrices->run(a);
  with_update_form(settings, [&](auto form) {
    using Form = decltype(form);
    if (a.uniform && !settings.layerwise()) {
      launch(stream, blocks_for(static_cast<std::size_t>(a.count)), kThreads, update_all_kernel<Form>, a);
    } else {
      launch(stream, blocks_of(a.chunk_count), kThreads, update_chunks_kernel<Form>, a);
    }
  });
}

}  // namespace ddp::cuda
