// Concatenations and selections of channels on the CPU (backend/ops/concat.h, channel_select.h): they copy elements of
// any type, in any layout.
#include <cstring>

#include "backend/cpu/device/planes.h"
#include "backend/cpu/pointwise/pointwise.h"

namespace ddp {
namespace {

// Some consecutive channels of a tensor.
struct ChannelRange {
  std::int64_t channels = 0;  // of the tensor
  std::int64_t first = 0;
};

// Channel to.first + i of `to` becomes channel from.first + (i % groups) * (count / groups) + i / groups of `from`.
struct ChannelCopy {
  ChannelRange to;
  ChannelRange from;
  std::int64_t count = 0;
  std::int64_t groups = 1;

  std::int64_t source(std::int64_t i) const { return from.first + i % groups * (count / groups) + i / groups; }
};

// Copies channels of the first `samples` samples; `shape` gives height and width.
void copy_channels(const ChannelCopy& copy, std::int64_t samples, const Shape& shape, Layout layout, Activations to,
                   ConstActivations from) {
  const auto size = static_cast<std::int64_t>(bytes_of(to.element()));
  auto* const target = static_cast<std::byte*>(to.data());
  const auto* const source = static_cast<const std::byte*>(from.data());
  const std::int64_t positions = shape.height * shape.width;
  // A run of contiguous values of one channel, and how many of these runs per channel there are.
  const bool last = layout == Layout::nhwc;
  const std::int64_t run = size * (last ? 1 : positions * (layout == Layout::lanes16 ? kLanes : 1));
  const std::int64_t blocks = last                        ? samples * positions
                              : layout == Layout::lanes16 ? (samples + kLanes - 1) / kLanes
                                                          : samples;
#pragma omp parallel for schedule(static)
  for (std::int64_t block = 0; block < blocks; ++block) {
    std::byte* const row = target + (block * copy.to.channels + copy.to.first) * run;
    const std::byte* const origin = source + block * copy.from.channels * run;
    if (copy.groups == 1) {
      std::memcpy(row, origin + copy.from.first * run, static_cast<std::size_t>(copy.count * run));
      continue;
    }
    for (std::int64_t i = 0; i < copy.count; ++i) {
      std::memcpy(row + i * run, origin + copy.source(i) * run, static_cast<std::size_t>(run));
    }
  }
}

void clear_inactive(Activations gradient, std::int64_t active, std::int64_t batch, const Shape& shape, Layout layout) {
  if (gradient.element() == Element::bf16) {
    clear_rest(gradient.bf16(), active, batch, shape, layout);
  } else {
    clear_rest(gradient.fp32(), active, batch, shape, layout);
  }
}

class Concat final : public Op {
 public:
  Concat(const ConcatSpec& spec, Layout layout) : spec_(spec), layout_(layout) {}

  void forward(const ForwardArguments& a) override {
    const std::int64_t samples = computed_samples(a.active, spec_.batch, layout_);
    copy_channels({whole(), first(), spec_.input.channels}, samples, spec_.input, layout_, a.y, a.x());
    copy_channels({behind(), second(), spec_.second_channels}, samples, spec_.input, layout_, a.y, a.inputs[1]);
  }
  void backward(const BackwardArguments& a) override {
    const std::int64_t samples = computed_samples(a.active, spec_.batch, layout_);
    copy_channels({first(), whole(), spec_.input.channels}, samples, spec_.input, layout_, a.dx(), a.dy);
    copy_channels({second(), behind(), spec_.second_channels}, samples, spec_.input, layout_, a.input_gradients[1],
                  a.dy);
    clear_inactive(a.dx(), a.active, spec_.batch, spec_.input, layout_);
    clear_inactive(a.input_gradients[1], a.active, spec_.batch, spec_.further_input(1), layout_);
  }

 private:
  ChannelRange first() const { return {spec_.input.channels, 0}; }
  ChannelRange second() const { return {spec_.second_channels, 0}; }
  ChannelRange whole() const { return {spec_.output().channels, 0}; }
  ChannelRange behind() const { return {spec_.output().channels, spec_.input.channels}; }

  ConcatSpec spec_;
  Layout layout_;
};

class ChannelSelect final : public Op {
 public:
  ChannelSelect(const ChannelSelectSpec& spec, Layout layout) : spec_(spec), layout_(layout) {}

  void forward(const ForwardArguments& a) override {
    copy_channels({{spec_.count, 0}, {spec_.input.channels, spec_.first}, spec_.count, spec_.groups},
                  computed_samples(a.active, spec_.batch, layout_), spec_.input, layout_, a.y, a.x());
  }
  void backward(const BackwardArguments& a) override {
    if (spec_.count < spec_.input.channels) {
      const std::int64_t all = stored_elements(spec_.batch, spec_.input, layout_);
      std::memset(a.dx().data(), 0, static_cast<std::size_t>(all) * bytes_of(a.dx().element()));
    }
    // A shuffle of g groups is undone by one of count / g groups.
    copy_channels({{spec_.input.channels, spec_.first}, {spec_.count, 0}, spec_.count, spec_.count / spec_.groups},
                  computed_samples(a.active, spec_.batch, layout_), spec_.input, layout_, a.dx(), a.dy);
    clear_inactive(a.dx(), a.active, spec_.batch, spec_.input, layout_);
  }

 private:
  ChannelSelectSpec spec_;
  Layout layout_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const ConcatSpec& spec, Layout layout) {
  return std::make_unique<Concat>(spec, layout);
}

std::unique_ptr<Op> make_cpu_op(const ChannelSelectSpec& spec, Layout layout) {
  return std::make_unique<ChannelSelect>(spec, layout);
}

}  // namespace ddp
