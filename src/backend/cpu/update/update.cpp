// Optimizers over flat buffers.
#include "optim/rules/update.h"

#include <algorithm>

#include "backend/cpu/update/squares.h"
#include "backend/cpu/update/update.h"
#include "backend/update/matrix_update.h"

namespace ddp {
namespace {

double sum_over(const UpdateArguments& a, std::int64_t first, std::int64_t count, int which) {
  double sum = 0;
  for (std::int64_t c = first; c < first + count; ++c) sum += a.sums[2 * c + which];
  return sum;
}

// Sum of squares of the gradient of the whole model.
double squares_of_all(const UpdateArguments& a) {
  // In the same order whether the model has parts or not.
  const auto add = [&a](double before) {
    for (std::int64_t c = 0; c < a.chunk_count; ++c) before += a.sums[2 * c];
    return before;
  };
  return a.sum_over_parts == nullptr ? add(0) : (*a.sum_over_parts)(add);
}

// Makes the sums of squares of segments that are divided among the ranks those over all ranks: the first chunk gets the
// whole sum, so that sum_over() has the same bits on all ranks. `which`: how many sums of each chunk there are.
void complete_sums(const UpdateArguments& a, int which) {
  if (a.sums_over_ranks == nullptr) return;
  for (int w = 0; w < which; ++w) {
    std::size_t divided = 0;
    for (std::int64_t s = 0; s < a.segment_count; ++s) {
      const ChunksOfSegment& segment = a.segments[s];
      // The ratios are computed later.
      if (segment.divided) a.ratios[divided++] = sum_over(a, segment.first, segment.count, w);
    }
    (*a.sums_over_ranks)({a.ratios, divided});
    divided = 0;
    for (std::int64_t s = 0; s < a.segment_count; ++s) {
      const ChunksOfSegment& segment = a.segments[s];
      if (!segment.divided) continue;
      for (std::int64_t c = segment.first; c < segment.first + segment.count; ++c) a.sums[2 * c + w] = 0;
      a.sums[2 * segment.first + w] = a.ratios[divided++];
    }
  }
}

// For each chunk that is trained the sum of squares of the gradient, and of the weights if both norms are needed.
void sum_squares(const UpdateArguments& a) {
  const bool weights = a.settings.rule == UpdateRule::lars;
#pragma omp parallel for schedule(static)
  for (std::int64_t c = 0; c < a.chunk_count; ++c) {
    const UpdateChunk& chunk = a.chunks[c];
    const float* g = a.gradient + chunk.begin;
    const float* w = a.weights + chunk.begin;
    a.sums[2 * c] =
        a.control->step > chunk.last_step ? 0 : sum_of_squares(chunk.count, [g](std::int64_t i) { return g[i]; });
    if (weights) a.sums[2 * c + 1] = sum_of_squares(chunk.count, [w](std::int64_t i) { return w[i]; });
  }
  complete_sums(a, weights ? 2 : 1);
}

ElementNumbers numbers_of(const UpdateArguments& a, const UpdateChunk& chunk) {
  const double ratio = a.settings.layerwise() ? a.ratios[chunk.segment] : 1;
  const ElementNumbers n =
      element_numbers(a.settings, numbers_for(*a.numbers, chunk), static_cast<double>(chunk.lr_scale),
                      static_cast<double>(chunk.decay_scale), ratio);
  return a.numbers->control.step > chunk.last_step ? frozen(n) : n;
}

// LAMB's moments, and for each chunk the sums of squares of its direction and of the weights.
void update_lamb_moments(const UpdateArguments& a) {
#pragma omp parallel for schedule(static)
  for (std::int64_t c = 0; c < a.chunk_count; ++c) {
    const UpdateChunk& chunk = a.chunks[c];
    const ElementNumbers n = element_numbers(a.settings, *a.numbers, 1, static_cast<double>(chunk.decay_scale), 1);
    const float* g = a.gradient + chunk.begin;
    const float* w = a.weights + chunk.begin;
    float* mean = a.first + chunk.begin;
    float* square = a.second + chunk.begin;
#pragma omp simd
    for (std::int64_t i = 0; i < chunk.count; ++i) update_moments(n, clipped(n, g[i]), mean[i], square[i]);
    a.sums[2 * c] =
        sum_of_squares(chunk.count, [=, &n](std::int64_t i) { return lamb_direction(n, w[i], mean[i], square[i]); });
    a.sums[2 * c + 1] = sum_of_squares(chunk.count, [w](std::int64_t i) { return w[i]; });
  }
  complete_sums(a, 2);
}

void find_ratios(const UpdateArguments& a) {
  for (std::int64_t s = 0; s < a.segment_count; ++s) {
    const ChunksOfSegment& segment = a.segments[s];
    a.ratios[s] =
        !segment.adapt
            ? 1
            : trust_ratio(a.settings, a.numbers->gradient_scale, static_cast<double>(segment.decay_scale),
                          sum_over(a, segment.first, segment.count, 1), sum_over(a, segment.first, segment.count, 0));
  }
}

// With pointers and numbers of its own, so that compilers vectorise it. Not "omp simd", which in GCC makes an array of the places,
// and the shortest of these loops scalar.
template <class Form>
void update_range(const UpdateBuffers& buffers, ElementNumbers n, std::int64_t begin, std::int64_t end) {
  const ElementPlaces first = places_at<Form>(buffers, begin);
  float* __restrict weight = first.weight;
  const float* __restrict gradient = first.gradient;
  float* __restrict state1 = first.first;
  float* __restrict state2 = first.second;
  float* __restrict average = first.average;
  const std::int64_t count = end - begin;
  for (std::int64_t i = 0; i < count; ++i) {
    update_element<Form>(n, {weight + i, gradient + i, Form::Rule::first ? state1 + i : nullptr,
                             Form::Rule::second ? state2 + i : nullptr, Form::average ? average + i : nullptr});
  }
}

template <class Form>
void update_all(const UpdateArguments& a, const ElementNumbers& n) {
#pragma omp parallel for schedule(static)
  for (std::int64_t begin = 0; begin < a.count; begin += kUpdateChunk) {
    update_range<Form>(a, n, begin, std::min(a.count, begin + kUpdateChunk));
  }
}

template <class Form>
void update_chunks(const UpdateArguments& a) {
#pragma omp parallel for schedule(static)
  for (std::int64_t c = 0; c < a.chunk_count; ++c) {
    const UpdateChunk& chunk = a.chunks[c];
    if (chunk.in_matrix) continue;
    update_range<Form>(a, numbers_of(a, chunk), chunk.begin, chunk.begin + chunk.count);
  }
}

}  // namespace

void cpu_update(const UpdateArguments& a) {
  if (*a.skip != 0) return;
  const bool clips = a.settings.clip_norm > 0;
  if (clips || a.settings.rule == UpdateRule::lars) sum_squares(a);
  *a.numbers = step_numbers(a.settings, *a.control, clips ? squares_of_all(a) : 0);
  if (a.settings.rule == UpdateRule::lamb) update_lamb_moments(a);
  if (a.settings.layerwise()) find_ratios(a);
  if (a.matrices != nullptr) a.matrices->run(a);
  with_update_form(a.settings, [&a](auto form) {
    using Form = decltype(form);
    if (a.uniform && !a.settings.layerwise()) {
      update_all<Form>(a, element_numbers(a.settings, *a.numbers, static_cast<double>(a.lr_scale),
                                          static_cast<double>(a.decay_scale), 1));
    } else {
      update_chunks<Form>(a);
    }
  });
}

}  // namespace ddp
