// Reflected and replicated borders (backend/ops/pad.h). In the backward pass a thread adds the gradients of all places
// that show its element, in row-major order.
#include "backend/cuda/code/vector.cuh"
#include "backend/cuda/pointwise/pointwise.h"

namespace ddp::cuda {
namespace {

// `planes` images with `inner` contiguous values at each position, as in pooling.cu.
struct Pad {
  std::uint32_t planes, inner;
  std::int32_t height, width, out_height, out_width, top, left;
  bool reflect;
};

__device__ std::int32_t source_of(std::int32_t place, std::int32_t size, bool reflect) {
  if (!reflect) return place < 0 ? 0 : place < size ? place : size - 1;
  if (place < 0) return -place;
  return place < size ? place : 2 * (size - 1) - place;
}

template <class T>
__global__ void pad_forward_kernel(const Pad p, const T* x, T* y, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    auto index = static_cast<std::uint32_t>(i);
    const std::uint32_t inner = index % p.inner;
    index /= p.inner;
    const auto width = static_cast<std::uint32_t>(p.out_width);
    const auto height = static_cast<std::uint32_t>(p.out_height);
    const std::int32_t column = source_of(static_cast<std::int32_t>(index % width) - p.left, p.width, p.reflect);
    index /= width;
    const std::int32_t row = source_of(static_cast<std::int32_t>(index % height) - p.top, p.height, p.reflect);
    const std::size_t plane = index / height;
    y[i] = x[((plane * static_cast<std::uint32_t>(p.height) + static_cast<std::uint32_t>(row)) *
                  static_cast<std::uint32_t>(p.width) +
              static_cast<std::uint32_t>(column)) *
                 p.inner +
             inner];
  }
}

// Calls f(place) for each of `results` places of one dimension that show the element `at` of `size`.
template <class F>
__device__ void each_place(std::int32_t at, std::int32_t size, std::int32_t before, std::int32_t results, bool reflect,
                           F f) {
  if (!reflect) {
    const std::int32_t first = at == 0 ? 0 : before + at;
    const std::int32_t last = at == size - 1 ? results - 1 : before + at;
    for (std::int32_t place = first; place <= last; ++place) f(place);
    return;
  }
  if (at > 0 && at <= before) f(before - at);
  f(before + at);
  const std::int32_t turned = before + 2 * (size - 1) - at;
  if (at < size - 1 && turned < results) f(turned);
}

template <class T>
__global__ void pad_backward_kernel(const Pad p, const T* dy, T* dx, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    auto index = static_cast<std::uint32_t>(i);
    const std::uint32_t inner = index % p.inner;
    index /= p.inner;
    const auto width = static_cast<std::uint32_t>(p.width);
    const auto height = static_cast<std::uint32_t>(p.height);
    const auto at_column = static_cast<std::int32_t>(index % width);
    index /= width;
    const auto at_row = static_cast<std::int32_t>(index % height);
    const std::size_t plane = index / height;
    float sum = 0;
    each_place(at_row, p.height, p.top, p.out_height, p.reflect, [&](std::int32_t row) {
      const std::size_t line = plane * static_cast<std::uint32_t>(p.out_height) + static_cast<std::uint32_t>(row);
      each_place(at_column, p.width, p.left, p.out_width, p.reflect, [&](std::int32_t column) {
        const std::size_t place = line * static_cast<std::uint32_t>(p.out_width) + static_cast<std::uint32_t>(column);
        sum += get(dy, place * p.inner + inner);
      });
    });
    put(dx, i, sum);
  }
}

class CudaPad final : public Op {
 public:
  CudaPad(const CudaContext& context, const PadSpec& spec, Layout layout)
      : context_(context),
        in_count_(static_cast<std::size_t>(spec.batch * spec.input.elements())),
        out_count_(static_cast<std::size_t>(spec.batch * spec.output().elements())) {
    const bool nhwc = layout == Layout::nhwc;
    const auto u32 = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
    const auto i32 = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
    pad_ = {u32(nhwc ? spec.batch : spec.batch * spec.input.channels),
            nhwc ? u32(spec.input.channels) : 1U,
            i32(spec.input.height),
            i32(spec.input.width),
            i32(spec.output().height),
            i32(spec.output().width),
            i32(spec.padding.top),
            i32(spec.padding.left),
            spec.mode == PadMode::reflect};
  }

  void forward(const ForwardArguments& a) override {
    if (out_count_ == 0) return;
    with_element(context_.element(), [&](auto zero) {
      using T = decltype(zero);
      launch(context_.stream, blocks_for(out_count_), kThreads, pad_forward_kernel<T>, pad_, as<T>(a.x().data()),
             as<T>(a.y.data()), out_count_);
    });
  }
  void backward(const BackwardArguments& a) override {
    if (in_count_ == 0) return;
    with_element(context_.element(), [&](auto zero) {
      using T = decltype(zero);
      launch(context_.stream, blocks_for(in_count_), kThreads, pad_backward_kernel<T>, pad_, as<T>(a.dy.data()),
             as<T>(a.dx().data()), in_count_);
    });
  }

 private:
  const CudaContext& context_;
  std::size_t in_count_;
  std::size_t out_count_;
  Pad pad_{};
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const PadSpec& spec, Layout layout) {
  return std::make_unique<CudaPad>(context, spec, layout);
}

}  // namespace ddp::cuda
