#include "backend/arithmetic.h"
#include "backend/cuda/code/vector.cuh"
#include "backend/cuda/pointwise/pointwise.h"

namespace ddp::cuda {
namespace {

struct Dropout {
  std::uint32_t channels, positions;  // in memory [samples][positions][channels]
  std::uint32_t active;               // active samples; the others are copied
  std::uint32_t stream;
  std::uint32_t together;  // elements per unit
  float rate;
};

// Iterates over elements in memory order without a division per element.
class MaskIndex {
 public:
  __device__ MaskIndex(const Dropout& d, std::uint32_t index)
      : channel_(index % d.channels),
        position_(index / d.channels % d.positions),
        sample_(index / d.channels / d.positions) {}

  __device__ std::uint32_t sample() const { return sample_; }
  // The index of the element's unit, in PyTorch's order within the sample.
  __device__ std::uint32_t unit(const Dropout& d) const {
    const std::uint32_t element = channel_ * d.positions + position_;
    return d.together > 1 ? element / d.together : element;
  }
  __device__ void next(const Dropout& d) {
    if (++channel_ < d.channels) return;
    channel_ = 0;
    if (++position_ < d.positions) return;
    position_ = 0;
    ++sample_;
  }

 private:
  std::uint32_t channel_, position_, sample_;
};

template <class T>
__global__ void dropout_kernel(const Dropout d, const std::uint64_t* keys, const T* from, T* to, std::size_t count) {
  constexpr unsigned kWidth = kVector<T>;
  const float scale = dropout_scale(d.rate);
  for (std::size_t i = first_index() * kWidth; i < count; i += index_step() * kWidth) {
    float values[kWidth];
    get_some(from, i, count, values);
    MaskIndex place(d, static_cast<std::uint32_t>(i));
    for (unsigned j = 0; j < kWidth; ++j, place.next(d)) {
      if (place.sample() >= d.active) break;
      const bool kept = dropout_keeps(keys[place.sample()], d.stream, place.unit(d), d.rate);
      values[j] = kept ? values[j] * scale : 0.0F;
    }
    put_some(to, i, count, values);
  }
}

}  // namespace

void dropout(cudaStream_t stream, Element element, const DropoutSpec& spec, Layout layout, std::int64_t active,
             const std::uint64_t* keys, const void* from, void* to) {
  const std::int64_t count = spec.batch * spec.shape.elements();
  if (count == 0) return;
  const auto u32 = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const bool nhwc = layout == Layout::nhwc;
  // The plain layout has PyTorch's order.
  const Dropout settings{u32(nhwc ? spec.shape.channels : spec.shape.elements()),
                         u32(nhwc ? spec.shape.height * spec.shape.width : 1),
                         u32(active),
                         spec.stream,
                         u32(spec.unit_elements()),
                         spec.rate};
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, vector_blocks_for<T>(count), kThreads, dropout_kernel<T>, settings, keys, as<T>(from), as<T>(to),
           count);
  });
}

}  // namespace ddp::cuda
