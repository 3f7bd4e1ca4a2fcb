// Layouts of activations.
//
// An activation of N samples with C channels of H x W pixels is stored in one of three layouts, its elements fp32, bf16
// or fp16 (activations.h):
//
//   plain    [N][C][H][W]            PyTorch's order; the only one at the borders
//   nhwc     [N][H][W][C]            oneDNN's channels-last
//   lanes16  [N/16][C][H][W][16]     16 interleaved samples: every operation is a vector operation over samples,
//                                    for any number of channels; N is rounded up, the samples beyond it are zero
//
// A feature vector has H = W = 1. Flattening a lanes16 tensor to a vector copies nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/types/precision.h"
#include "base/types/shape.h"

namespace ddp {

enum class Layout { plain, nhwc, lanes16 };
inline constexpr std::array<Layout, 3> kLayouts = {Layout::plain, Layout::nhwc, Layout::lanes16};

// Samples per vector in the lanes16 layout.
inline constexpr std::int64_t kLanes = 16;

// A bfloat16 number: the upper half of a float's bits.
struct Bf16 {
  std::uint16_t bits = 0;
};

// An IEEE 754 binary16 number: at most 65504, and not less than 6e-8 (base/types/half.h).
struct Fp16 {
  std::uint16_t bits = 0;
};

// The element type of activations.
enum class Element { fp32, bf16, fp16 };
constexpr std::size_t bytes_of(Element element) { return element == Element::fp32 ? sizeof(float) : sizeof(Bf16); }
constexpr std::string_view to_string(Element element) {
  switch (element) {
    case Element::fp32:
      return "fp32";
    case Element::bf16:
      return "bf16";
    case Element::fp16:
      break;
  }
  return "fp16";
}

constexpr Element element_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
    case Precision::tf32:
      return Element::fp32;
    case Precision::bf16:
      return Element::bf16;
    case Precision::fp16:
      break;
  }
  return Element::fp16;
}

constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

// Samples stored for a batch of `batch` samples.
constexpr std::int64_t stored_samples(std::int64_t batch, Layout layout) {
  return layout == Layout::lanes16 ? round_up(batch, kLanes) : batch;
}

// Elements that `batch` samples of `shape` take.
constexpr std::int64_t stored_elements(std::int64_t batch, const Shape& shape, Layout layout) {
  return stored_samples(batch, layout) * shape.elements();
}

constexpr std::string_view to_string(Layout layout) {
  switch (layout) {
    case Layout::plain:
      return "plain";
    case Layout::nhwc:
      return "nhwc";
    case Layout::lanes16:
      break;
  }
  return "lanes16";
}

// The offset of element (sample, channel, y, x), in elements.
constexpr std::int64_t element_offset(const Shape& s, Layout layout, std::int64_t n, std::int64_t c, std::int64_t y,
                                      std::int64_t x) {
  switch (layout) {
    case Layout::plain:
      return ((n * s.channels + c) * s.height + y) * s.width + x;
    case Layout::nhwc:
      return ((n * s.height + y) * s.width + x) * s.channels + c;
    case Layout::lanes16:
      break;
  }
  return ((((n / kLanes) * s.channels + c) * s.height + y) * s.width + x) * kLanes + n % kLanes;
}

}  // namespace ddp
