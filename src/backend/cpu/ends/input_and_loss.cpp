#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "backend/arithmetic.h"
#include "backend/cpu/device/values.h"
#include "backend/cpu/update/update.h"
#include "backend/op.h"
#include "base/types/half.h"

namespace ddp {
namespace {

std::int64_t row_of(const ForwardArguments& a, std::int64_t sample) {
  return a.images->rows == nullptr ? sample : a.images->rows[sample];
}

float value_of(float element) { return element; }
float value_of(Bf16 element) { return float_of_bf16(element.bits); }
float value_of(Fp16 element) { return half_to_float(element.bits); }
void set(float& element, float value) { element = value; }
void set(Bf16& element, float value) { element.bits = bf16_bits(value); }
void set(Fp16& element, float value) { element.bits = float_to_half(value); }

// The lanes16 layout is written in order, sixteen samples read side by side.
template <class Value>
void load_lanes(const InputSpec& spec, const ForwardArguments& a, Value* x) {
  const Shape& crop = spec.shape;
  const std::int64_t image = spec.image.elements();
  const std::int64_t rows = (a.active + kLanes - 1) / kLanes * crop.channels * crop.height;
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t y = row % crop.height;
    const std::int64_t c = row / crop.height % crop.channels;
    const std::int64_t first = row / crop.height / crop.channels * kLanes;
    const std::int64_t lanes = std::min(kLanes, a.active - first);
    const float scale = spec.scale[static_cast<std::size_t>(c)];
    const float shift = spec.shift[static_cast<std::size_t>(c)];
    const std::int64_t within = (c * spec.image.height + y) * spec.image.width;
    std::array<const std::uint8_t*, kLanes> from{};
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      from[static_cast<std::size_t>(lane)] = a.images->pixels + row_of(a, first + lane) * image + within;
    }
    Value* to = x + row * crop.width * kLanes;
    for (std::int64_t column = 0; column < crop.width; ++column, to += kLanes) {
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        set(to[lane], pixel_value(from[static_cast<std::size_t>(lane)][column], scale, shift));
      }
      std::fill(to + lanes, to + kLanes, Value{});
    }
  }
}

template <class Value>
void load_samples(const InputSpec& spec, Layout layout, const ForwardArguments& a, Value* x) {
  const Shape& crop = spec.shape;
#pragma omp parallel for schedule(static)
  for (std::int64_t n = 0; n < a.active; ++n) {
    const std::uint8_t* image = a.images->pixels + row_of(a, n) * spec.image.elements();
    for (std::int64_t c = 0; c < crop.channels; ++c) {
      const float scale = spec.scale[static_cast<std::size_t>(c)];
      const float shift = spec.shift[static_cast<std::size_t>(c)];
      for (std::int64_t y = 0; y < crop.height; ++y) {
        for (std::int64_t column = 0; column < crop.width; ++column) {
          const std::uint8_t byte = image[(c * spec.image.height + y) * spec.image.width + column];
          set(x[element_offset(crop, layout, n, c, y, column)], pixel_value(byte, scale, shift));
        }
      }
    }
  }
}

// Byte by byte: the CPU's loader threads edit images, and only stand-ins for a GPU come here.
template <class Value>
void load_edited(const InputSpec& spec, Layout layout, const ForwardArguments& a, Value* x) {
  const Shape& crop = spec.shape;
  const EditRules rules{static_cast<std::int32_t>(spec.image.height), static_cast<std::int32_t>(spec.image.width),
                        spec.edits_reflect};
#pragma omp parallel for schedule(static)
  for (std::int64_t n = 0; n < a.active; ++n) {
    const std::uint8_t* image = a.images->pixels + row_of(a, n) * spec.image.elements();
    for (std::int64_t c = 0; c < crop.channels; ++c) {
      const auto channel = static_cast<std::size_t>(c);
      const std::uint8_t* plane = image + c * spec.image.height * spec.image.width;
      for (std::int64_t y = 0; y < crop.height; ++y) {
        for (std::int64_t column = 0; column < crop.width; ++column) {
          const std::uint8_t byte = edited_byte(plane, rules, a.images->edits[n], static_cast<std::int32_t>(y),
                                                static_cast<std::int32_t>(column), spec.fill[channel]);
          set(x[element_offset(crop, layout, n, c, y, column)],
              pixel_value(byte, spec.scale[channel], spec.shift[channel]));
        }
      }
    }
  }
}

template <class Value>
void load(const InputSpec& spec, Layout layout, const ForwardArguments& a, Value* x) {
  if (a.images->edits != nullptr) {
    // Lanes of samples beyond the last are zero.
    std::fill_n(x, stored_elements(a.active, spec.shape, layout), Value{});
    load_edited(spec, layout, a, x);
  } else if (layout == Layout::lanes16) {
    load_lanes(spec, a, x);
  } else {
    load_samples(spec, layout, a, x);
  }
  // A partial shard is padded with zero samples, which operators may read but do not count.
  const std::int64_t written = stored_elements(a.active, spec.shape, layout);
  std::fill(x + written, x + stored_elements(spec.batch, spec.shape, layout), Value{});
}

template <class Value>
void cross_entropy_of(const LossSpec& spec, Layout layout, const ForwardArguments& arguments, const Value* all_logits,
                      Value* gradients) {
  const LossArguments& a = *arguments.loss;
  const Shape row{spec.classes, 1, 1};
  const std::int64_t step = layout == Layout::lanes16 ? kLanes : 1;
  const auto classes = static_cast<float>(spec.classes);
  const float scale = a.loss_scale == nullptr ? a.gradient_scale : a.gradient_scale * static_cast<float>(*a.loss_scale);
  if (gradients != nullptr) std::fill_n(gradients, stored_elements(spec.batch, row, layout), Value{});
  double loss_sum = 0;
  std::int64_t correct = 0;
  for (std::int64_t n = 0; n < arguments.active; ++n) {
    const std::int64_t begin = element_offset(row, layout, n, 0, 0, 0);
    const Value* logits = all_logits + begin;
    const auto logit = [&](std::int64_t c) { return value_of(logits[c * step]); };
    std::int64_t best = 0;
    float logit_sum = 0;
    for (std::int64_t c = 0; c < spec.classes; ++c) {
      if (logit(c) > logit(best)) best = c;
      logit_sum += logit(c);
    }
    const float maximum = logit(best);
    float exponentials = 0;
    for (std::int64_t c = 0; c < spec.classes; ++c) exponentials += std::exp(logit(c) - maximum);
    const float log_sum = maximum + std::log(exponentials);
    const TargetLabel target = target_label(a.labels, a.other_labels, a.label_weights, n);
    const float wanted = target_logit(target, logit(target.label), logit(target.other));
    const float smoothing = spec.smoothing(arguments.training);
    loss_sum += static_cast<double>(cross_entropy(log_sum, wanted, logit_sum, classes, smoothing));
    correct += best == answer_of(target) ? 1 : 0;
    if (gradients == nullptr) continue;
    for (std::int64_t c = 0; c < spec.classes; ++c) {
      const float share = share_of(target, static_cast<std::uint32_t>(c));
      set(gradients[begin + c * step], cross_entropy_gradient(logit(c), log_sum, share, classes, smoothing) * scale);
    }
  }
  *a.loss_sum = loss_sum;
  *a.correct += static_cast<double>(correct);
}

// Calls f with a value of the element's type.
template <class F>
void with_value(Element element, const F& f) {
  switch (element) {
    case Element::fp32:
      return f(float{});
    case Element::bf16:
      return f(Bf16{});
    case Element::fp16:
      return f(Fp16{});
  }
}

class CpuInput final : public EndOp {
 public:
  CpuInput(InputSpec spec, Layout layout) : spec_(std::move(spec)), layout_(layout) {}
  void forward(const ForwardArguments& a) override {
    cpu_copy_row(a.images->step);
    with_value(a.y.element(), [&](auto zero) { load(spec_, layout_, a, values<decltype(zero)>(a.y)); });
  }

 private:
  InputSpec spec_;
  Layout layout_;
};

class CpuLoss final : public EndOp {
 public:
  CpuLoss(const LossSpec& spec, Layout layout) : spec_(spec), layout_(layout) {}
  void forward(const ForwardArguments& a) override {
    with_value(a.x().element(), [&](auto zero) {
      using Value = decltype(zero);
      cross_entropy_of(spec_, layout_, a, values<Value>(a.x()), values<Value>(a.loss->gradient));
    });
  }

 private:
  LossSpec spec_;
  Layout layout_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const InputSpec& spec, Layout layout) {
  return std::make_unique<CpuInput>(spec, layout);
}

std::unique_ptr<Op> make_cpu_op(const LossSpec& spec, Layout layout) { return std::make_unique<CpuLoss>(spec, layout); }

}  // namespace ddp
