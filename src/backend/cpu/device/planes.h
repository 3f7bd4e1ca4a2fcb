// A view of a layout as planes: `outer` planes of height x width positions with `inner` contiguous values each.
// Operators that treat all channels and samples alike are written once on this view for every layout.
#pragma once

#include <algorithm>

#include "backend/tensor.h"

namespace ddp {

struct Planes {
  std::int64_t outer;
  std::int64_t inner;
};

// The blocks of kLanes samples in lanes16.
inline std::int64_t sample_blocks(std::int64_t samples) { return (samples + kLanes - 1) / kLanes; }

// The number of samples that an operator computes if `active` of `batch` are active: whole blocks in lanes16; all in
// other layouts, because oneDNN computes all, and what it reads beyond the active ones must be finite (their gradients
// are zero).
inline std::int64_t computed_samples(std::int64_t active, std::int64_t batch, Layout layout) {
  return layout == Layout::lanes16 ? active : batch;
}

// The view of the first `samples` samples.
inline Planes planes_of(std::int64_t samples, const Shape& shape, Layout layout) {
  switch (layout) {
    case Layout::plain:
      return {samples * shape.channels, 1};
    case Layout::nhwc:
      return {samples, shape.channels};
    case Layout::lanes16:
      break;
  }
  return {sample_blocks(samples) * shape.channels, kLanes};
}

// Writes zeros for the samples that are not computed, so that they contribute no gradient.
template <class Value>
void clear_rest(Value* data, std::int64_t active, std::int64_t batch, const Shape& shape, Layout layout) {
  const std::int64_t computed = stored_elements(computed_samples(active, batch, layout), shape, layout);
  std::fill(data + computed, data + stored_elements(batch, shape, layout), Value{});
}

// For elementwise operators: calls f(offset, count) for pieces of the computed samples that fit into the first-level
// cache, in parallel.
template <class F>
void each_piece(std::int64_t active, std::int64_t batch, const Shape& shape, Layout layout, F f) {
  constexpr std::int64_t kPiece = 2048;
  const std::int64_t all = stored_elements(computed_samples(active, batch, layout), shape, layout);
#pragma omp parallel for schedule(static)
  for (std::int64_t at = 0; at < all; at += kPiece) f(at, std::min(kPiece, all - at));
}

}  // namespace ddp
