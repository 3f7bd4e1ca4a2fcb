#include <algorithm>
#include <array>
#include <cmath>

#include "backend/arithmetic.h"
#include "backend/cpu/operators.h"

namespace ddp {
namespace {

std::int64_t row_of(const InputArguments& a, std::int64_t sample) {
  return a.rows == nullptr ? sample : a.rows[sample];
}

// The lanes16 layout is written in order, sixteen samples read side by side.
void load_lanes(const InputSpec& spec, const InputArguments& a) {
  const Shape& crop = spec.cropped;
  const std::int64_t image = spec.image.elements();
  const std::int64_t rows = (a.count + kLanes - 1) / kLanes * crop.channels * crop.height;
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t y = row % crop.height;
    const std::int64_t c = row / crop.height % crop.channels;
    const std::int64_t first = row / crop.height / crop.channels * kLanes;
    const std::int64_t lanes = std::min(kLanes, a.count - first);
    const float scale = spec.scale[static_cast<std::size_t>(c)];
    const float shift = spec.shift[static_cast<std::size_t>(c)];
    const std::int64_t within = (c * spec.image.height + y) * spec.image.width;
    std::array<const std::uint8_t*, kLanes> from{};
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      from[static_cast<std::size_t>(lane)] = a.pixels + row_of(a, first + lane) * image + within;
    }
    float* to = a.x.fp32() + row * crop.width * kLanes;
    for (std::int64_t column = 0; column < crop.width; ++column, to += kLanes) {
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        to[lane] = pixel_value(from[static_cast<std::size_t>(lane)][column], scale, shift);
      }
      std::fill(to + lanes, to + kLanes, 0.0F);
    }
  }
}

void load_samples(const InputSpec& spec, const InputArguments& a) {
  const Shape& crop = spec.cropped;
  float* const x = a.x.fp32();
#pragma omp parallel for schedule(static)
  for (std::int64_t n = 0; n < a.count; ++n) {
    const std::uint8_t* image = a.pixels + row_of(a, n) * spec.image.elements();
    for (std::int64_t c = 0; c < crop.channels; ++c) {
      const float scale = spec.scale[static_cast<std::size_t>(c)];
      const float shift = spec.shift[static_cast<std::size_t>(c)];
      for (std::int64_t y = 0; y < crop.height; ++y) {
        for (std::int64_t column = 0; column < crop.width; ++column) {
          const std::uint8_t byte = image[(c * spec.image.height + y) * spec.image.width + column];
          x[element_offset(crop, spec.layout, n, c, y, column)] = pixel_value(byte, scale, shift);
        }
      }
    }
  }
}

}  // namespace

void cpu_load_input(const InputSpec& spec, const InputArguments& arguments) {
  if (spec.layout == Layout::lanes16) {
    load_lanes(spec, arguments);
  } else {
    load_samples(spec, arguments);
  }
  // A partial shard is padded with zero samples, which operators may read but do not count.
  const std::int64_t written = stored_elements(arguments.count, spec.cropped, spec.layout);
  float* const x = arguments.x.fp32();
  std::fill(x + written, x + stored_elements(spec.batch, spec.cropped, spec.layout), 0.0F);
}

void cpu_softmax_cross_entropy(const LossSpec& spec, const LossArguments& a) {
  const Shape row{spec.classes, 1, 1};
  const std::int64_t step = spec.layout == Layout::lanes16 ? kLanes : 1;
  const auto classes = static_cast<float>(spec.classes);
  if (a.gradient != nullptr) {
    std::fill_n(a.gradient.fp32(), stored_elements(spec.batch, row, spec.layout), 0.0F);
  }
  double loss_sum = 0;
  std::int64_t correct = 0;
  for (std::int64_t n = 0; n < a.active; ++n) {
    const std::int64_t begin = element_offset(row, spec.layout, n, 0, 0, 0);
    const float* logits = a.logits.fp32() + begin;
    std::int64_t best = 0;
    float logit_sum = 0;
    for (std::int64_t c = 0; c < spec.classes; ++c) {
      if (logits[c * step] > logits[best * step]) best = c;
      logit_sum += logits[c * step];
    }
    const float maximum = logits[best * step];
    float exponentials = 0;
    for (std::int64_t c = 0; c < spec.classes; ++c) exponentials += std::exp(logits[c * step] - maximum);
    const float log_sum = maximum + std::log(exponentials);
    const TargetLabel target = target_label(a.labels, a.other_labels, a.label_weights, n);
    const float wanted = target_logit(target, logits[target.label * step], logits[target.other * step]);
    const float smoothing = spec.label_smoothing;
    loss_sum += static_cast<double>(cross_entropy(log_sum, wanted, logit_sum, classes, smoothing));
    correct += best == answer_of(target) ? 1 : 0;
    if (a.gradient == nullptr) continue;
    float* gradient = a.gradient.fp32() + begin;
    for (std::int64_t c = 0; c < spec.classes; ++c) {
      const float share = share_of(target, static_cast<std::uint32_t>(c));
      gradient[c * step] =
          cross_entropy_gradient(logits[c * step], log_sum, share, classes, smoothing) * a.gradient_scale;
    }
  }
  *a.loss_sum = loss_sum;
  *a.correct += static_cast<double>(correct);
}

}  // namespace ddp
