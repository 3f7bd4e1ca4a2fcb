#include <algorithm>

#include "backend/cpu/pointwise/pointwise.h"

namespace ddp {
namespace {

// The strides of a layout in floats; samples of a lanes16 block are contiguous.
struct Strides {
  std::int64_t channel, row, column;
};

Strides strides_of(const Shape& s, Layout layout) {
  const std::int64_t zero = element_offset(s, layout, 0, 0, 0, 0);
  return {element_offset(s, layout, 0, 1, 0, 0) - zero, element_offset(s, layout, 0, 0, 1, 0) - zero,
          element_offset(s, layout, 0, 0, 0, 1) - zero};
}

void copy(const Shape& s, std::int64_t samples, const float* from, Layout from_layout, float* to, Layout to_layout) {
  const Strides a = strides_of(s, from_layout);
  const Strides b = strides_of(s, to_layout);
#pragma omp parallel for schedule(static)
  for (std::int64_t n = 0; n < samples; ++n) {
    const float* source = from + element_offset(s, from_layout, n, 0, 0, 0);
    float* target = to + element_offset(s, to_layout, n, 0, 0, 0);
    for (std::int64_t c = 0; c < s.channels; ++c) {
      for (std::int64_t y = 0; y < s.height; ++y) {
        for (std::int64_t x = 0; x < s.width; ++x) {
          target[c * b.channel + y * b.row + x * b.column] = source[c * a.channel + y * a.row + x * a.column];
        }
      }
    }
  }
}

// Samples beyond the active ones read as zero.
void clear_tail(const Shape& s, std::int64_t active, std::int64_t batch, float* data, Layout layout) {
  for (std::int64_t n = active; n < stored_samples(batch, layout); ++n) {
    const Strides step = strides_of(s, layout);
    float* sample = data + element_offset(s, layout, n, 0, 0, 0);
    for (std::int64_t c = 0; c < s.channels; ++c) {
      for (std::int64_t y = 0; y < s.height; ++y) {
        for (std::int64_t x = 0; x < s.width; ++x) sample[c * step.channel + y * step.row + x * step.column] = 0.0F;
      }
    }
  }
}

class Reordering final : public Op {
 public:
  Reordering(const ReorderSpec& spec, Layout from, Layout to) : spec_(spec), from_(from), to_(to) {}

  void forward(const ForwardArguments& a) override {
    copy(spec_.shape, a.active, a.x().fp32(), from_, a.y.fp32(), to_);
    clear_tail(spec_.shape, a.active, spec_.batch, a.y.fp32(), to_);
  }
  void backward(const BackwardArguments& a) override {
    copy(spec_.shape, a.active, a.dy.fp32(), to_, a.dx().fp32(), from_);
    clear_tail(spec_.shape, a.active, spec_.batch, a.dx().fp32(), from_);
  }

 private:
  ReorderSpec spec_;
  Layout from_;
  Layout to_;
};

// Only the reader interprets the order.
class ChannelsLast final : public Op {
 public:
  explicit ChannelsLast(const ChannelsLastSpec& spec) : elements_(spec.batch * spec.input.elements()) {}

  OpTraits traits() const override { return {.in_place = true}; }
  void forward(const ForwardArguments& a) override { move(a.x().fp32(), a.y.fp32()); }
  void backward(const BackwardArguments& a) override { move(a.dy.fp32(), a.dx().fp32()); }

 private:
  void move(const float* from, float* to) const {
    if (from != to) std::copy_n(from, elements_, to);
  }

  std::int64_t elements_;
};

}  // namespace

std::unique_ptr<Op> make_channels_last(const ChannelsLastSpec& spec) { return std::make_unique<ChannelsLast>(spec); }

std::unique_ptr<Op> make_reorder(const ReorderSpec& spec, Layout from, Layout to) {
  return std::make_unique<Reordering>(spec, from, to);
}

}  // namespace ddp
