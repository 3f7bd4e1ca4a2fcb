// Concatenations and selections of channels (backend/ops/concat.h, channel_select.h).
#include "backend/cuda/code/vector.cuh"
#include "backend/cuda/device/check.h"
#include "backend/cuda/pointwise/pointwise.h"

namespace ddp::cuda {
namespace {

// Some consecutive channels of a tensor.
struct ChannelRange {
  std::uint32_t channels;  // of the tensor
  std::uint32_t first;
};

// Channel to.first + i of `to` becomes channel from.first + (i % groups) * (count / groups) + i / groups of `from`.
struct ChannelCopy {
  ChannelRange to;
  ChannelRange from;
  std::uint32_t count;
  std::uint32_t groups;
  std::uint32_t positions;  // of a sample
  bool channels_last;
};

template <class T>
__global__ void copy_channels_kernel(const ChannelCopy c, const T* from, T* to, std::size_t elements) {
  for (std::size_t e = first_index(); e < elements; e += index_step()) {
    const auto at = static_cast<std::uint32_t>(e);
    const std::uint32_t sample = at / (c.count * c.positions);
    const std::uint32_t rest = at % (c.count * c.positions);
    const std::uint32_t i = c.channels_last ? rest % c.count : rest / c.positions;
    const std::uint32_t position = c.channels_last ? rest / c.count : rest % c.positions;
    const auto place = [&](const ChannelRange& range, std::uint32_t channel) {
      const std::size_t all = static_cast<std::size_t>(range.first) + channel;
      const std::size_t base = static_cast<std::size_t>(sample) * range.channels * c.positions;
      return base + (c.channels_last ? static_cast<std::size_t>(position) * range.channels + all
                                     : all * c.positions + position);
    };
    to[place(c.to, i)] = from[place(c.from, i % c.groups * (c.count / c.groups) + i / c.groups)];
  }
}

void copy_channels(const CudaContext& context, const ChannelCopy& copy, std::int64_t samples, const void* from,
                   void* to) {
  const auto elements = static_cast<std::size_t>(samples) * copy.count * copy.positions;
  if (elements == 0) return;
  with_element(context.element(), [&](auto zero) {
    using T = decltype(zero);
    launch(context.stream, blocks_for(elements), kThreads, copy_channels_kernel<T>, copy, as<T>(from), as<T>(to),
           elements);
  });
}

std::uint32_t u32(std::int64_t value) { return static_cast<std::uint32_t>(value); }

class CudaConcat final : public Op {
 public:
  CudaConcat(const CudaContext& context, const ConcatSpec& spec, Layout layout)
      : context_(context),
        batch_(spec.batch),
        first_{u32(spec.input.channels), 0},
        second_{u32(spec.second_channels), 0},
        positions_(u32(spec.input.height * spec.input.width)),
        channels_last_(layout == Layout::nhwc) {}

  void forward(const ForwardArguments& a) override {
    copy_channels(context_, copy(whole(), first_, first_.channels), batch_, a.x().data(), a.y.data());
    copy_channels(context_, copy(behind(), second_, second_.channels), batch_, a.inputs[1].data(), a.y.data());
  }
  void backward(const BackwardArguments& a) override {
    copy_channels(context_, copy(first_, whole(), first_.channels), batch_, a.dy.data(), a.dx().data());
    copy_channels(context_, copy(second_, behind(), second_.channels), batch_, a.dy.data(),
                  a.input_gradients[1].data());
  }

 private:
  ChannelRange whole() const { return {first_.channels + second_.channels, 0}; }
  ChannelRange behind() const { return {first_.channels + second_.channels, first_.channels}; }
  ChannelCopy copy(const ChannelRange& to, const ChannelRange& from, std::uint32_t count) const {
    return {to, from, count, 1, positions_, channels_last_};
  }

  const CudaContext& context_;
  std::int64_t batch_;
  ChannelRange first_;
  ChannelRange second_;
  std::uint32_t positions_;
  bool channels_last_;
};

class CudaChannelSelect final : public Op {
 public:
  CudaChannelSelect(const CudaContext& context, const ChannelSelectSpec& spec, Layout layout)
      : context_(context), spec_(spec), channels_last_(layout == Layout::nhwc) {}

  void forward(const ForwardArguments& a) override {
    const ChannelRange from{u32(spec_.input.channels), u32(spec_.first)};
    copy_channels(context_, copy({u32(spec_.count), 0}, from, spec_.groups), spec_.batch, a.x().data(), a.y.data());
  }
  void backward(const BackwardArguments& a) override {
    if (spec_.count < spec_.input.channels) {
      const auto count = static_cast<std::size_t>(spec_.batch * spec_.input.elements());
      DDP_CUDA(cudaMemsetAsync(a.dx().data(), 0, count * bytes_of(context_.element()), context_.stream));
    }
    const ChannelRange to{u32(spec_.input.channels), u32(spec_.first)};
    // A shuffle of g groups is undone by one of count / g groups.
    copy_channels(context_, copy(to, {u32(spec_.count), 0}, spec_.count / spec_.groups), spec_.batch, a.dy.data(),
                  a.dx().data());
  }

 private:
  ChannelCopy copy(const ChannelRange& to, const ChannelRange& from, std::int64_t groups) const {
    return {to, from, u32(spec_.count), u32(groups), u32(spec_.input.height * spec_.input.width), channels_last_};
  }

  const CudaContext& context_;
  ChannelSelectSpec spec_;
  bool channels_last_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const ConcatSpec& spec, Layout layout) {
  return std::make_unique<CudaConcat>(context, spec, layout);
}

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const ChannelSelectSpec& spec, Layout layout) {
  return std::make_unique<CudaChannelSelect>(context, spec, layout);
}

}  // namespace ddp::cuda
