#include "data/pipeline/auto_augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/random.h"

namespace ddp {
namespace {

// Streams of a sample's key, apart from those of augmentation.cpp.
enum Stream : std::uint64_t { rand_stream = 0x100, trivial_stream };

constexpr float kWhite = 255;

bool is_signed(AugmentOp op) { return op >= AugmentOp::shear_x && op <= AugmentOp::sharpness; }

// torch.linspace(from, to, kAugmentMagnitudes)[number] in fp32.
double linspace(float from, float to, int number) {
  constexpr int kLast = kAugmentMagnitudes - 1;
  const float step = (to - from) / static_cast<float>(kLast);
  const float value = number < kAugmentMagnitudes / 2 ? from + step * static_cast<float>(number)
                                                      : to - step * static_cast<float>(kLast - number);
  return static_cast<double>(value);
}

// From 8 bits to 8 - `removed`.
double bits(int removed, int number) {
  const float per_bit = static_cast<float>(kAugmentMagnitudes - 1) / static_cast<float>(removed);
  return 8 - std::nearbyint(static_cast<double>(static_cast<float>(number) / per_bit));
}

// The greatest magnitudes.
struct Ranges {
  float shear;
  float translate_x;  // in pixels
  float translate_y;
  float rotate;  // in degrees
  float ratio;   // of brightness, color, contrast and sharpness
  int removed_bits;
};

double magnitude_of(AugmentOp op, int number, const Ranges& greatest) {
  switch (op) {
    case AugmentOp::shear_x:
    case AugmentOp::shear_y:
      return linspace(0, greatest.shear, number);
    case AugmentOp::translate_x:
      return linspace(0, greatest.translate_x, number);
    case AugmentOp::translate_y:
      return linspace(0, greatest.translate_y, number);
    case AugmentOp::rotate:
      return linspace(0, greatest.rotate, number);
    case AugmentOp::brightness:
    case AugmentOp::color:
    case AugmentOp::contrast:
    case AugmentOp::sharpness:
      return linspace(0, greatest.ratio, number);
    case AugmentOp::posterize:
      return bits(greatest.removed_bits, number);
    case AugmentOp::solarize:
      return linspace(kWhite, 0, number);
    case AugmentOp::identity:
    case AugmentOp::auto_contrast:
    case AugmentOp::equalize:
      break;
  }
  return 0;
}

double signed_magnitude(AugmentOp op, double magnitude, Random& random) {
  return is_signed(op) && random.below(2) != 0 ? -magnitude : magnitude;
}

// Source coordinates from the centre of the image, of a point given likewise: x' = xx x + xy y + x0.
struct Affine {
  double xx = 1;
  double xy = 0;
  double x0 = 0;
  double yx = 0;
  double yy = 1;
  double y0 = 0;
};

// torch.nn.functional.grid_sample's position along a side, of which `unit` is a pixel's share, in fp32 as there: pixels
// halfway between two are found by its rounding.
struct GridAxis {
  GridAxis(double along_x, double along_y, double shift, std::int64_t length)
      : x(static_cast<float>(along_x) / half(length)),
        y(static_cast<float>(along_y) / half(length)),
        offset(static_cast<float>(shift) / half(length)),
        side(static_cast<float>(length)) {}

  static float half(std::int64_t length) { return 0.5F * static_cast<float>(length); }
  float nearest(float column, float row) const {
    const float position = column * x + row * y + offset;
    return std::nearbyint(((position + 1) * side - 1) / 2);
  }

  float x;
  float y;
  float offset;
  float side;
};

// The nearest pixels, and black outside of the image.
void warp(const Affine& a, const Shape& shape, std::span<std::uint8_t> pixels) {
  const GridAxis horizontal(a.xx, a.xy, a.x0, shape.width);
  const GridAxis vertical(a.yx, a.yy, a.y0, shape.height);
  const auto plane = static_cast<std::size_t>(shape.width * shape.height);
  const std::vector<std::uint8_t> from(pixels.begin(), pixels.end());
  std::size_t to = 0;
  for (std::int64_t row = 0; row < shape.height; ++row) {
    const float y = static_cast<float>(row) + 0.5F - GridAxis::half(shape.height);
    for (std::int64_t column = 0; column < shape.width; ++column, ++to) {
      const float x = static_cast<float>(column) + 0.5F - GridAxis::half(shape.width);
      const float source_x = horizontal.nearest(x, y);
      const float source_y = vertical.nearest(x, y);
      const bool inside = source_x >= 0 && source_x < horizontal.side && source_y >= 0 && source_y < vertical.side;
      const std::size_t at = inside ? static_cast<std::size_t>(source_y) * static_cast<std::size_t>(shape.width) +
                                          static_cast<std::size_t>(source_x)
                                    : 0;
      for (std::size_t c = 0; c < static_cast<std::size_t>(shape.channels); ++c) {
        pixels[c * plane + to] = inside ? from[c * plane + at] : std::uint8_t{0};
      }
    }
  }
}

// Shears keep the row or the column of pixels at the edge of the image, not the one through its centre.
Affine affine_of(const AugmentStep& step, const Shape& shape) {
  Affine a;
  const double m = step.magnitude;
  if (step.op == AugmentOp::shear_x) {
    a.xy = m;
    a.x0 = m * 0.5 * static_cast<double>(shape.height);
  } else if (step.op == AugmentOp::shear_y) {
    a.yx = m;
    a.y0 = m * 0.5 * static_cast<double>(shape.width);
  } else if (step.op == AugmentOp::translate_x) {
    a.x0 = -std::trunc(m);
  } else if (step.op == AugmentOp::translate_y) {
    a.y0 = -std::trunc(m);
  } else {
    const double angle = m * std::numbers::pi / 180;
    a.xx = a.yy = std::cos(angle);
    a.xy = -std::sin(angle);
    a.yx = std::sin(angle);
  }
  return a;
}

std::uint8_t to_byte(float value) { return static_cast<std::uint8_t>(std::clamp(value, 0.0F, kWhite)); }

// torchvision's blend, which truncates.
std::uint8_t blend(std::uint8_t a, float b, double ratio) {
  return to_byte(static_cast<float>(ratio) * static_cast<float>(a) + static_cast<float>(1 - ratio) * b);
}

// torchvision's grey of a pixel, which truncates; grey images are their own.
std::uint8_t grey_at(const Shape& shape, std::span<const std::uint8_t> pixels, std::size_t i) {
  if (shape.channels != 3) return pixels[i];
  const auto plane = static_cast<std::size_t>(shape.width * shape.height);
  return static_cast<std::uint8_t>(0.2989F * static_cast<float>(pixels[i]) +
                                   0.587F * static_cast<float>(pixels[i + plane]) +
                                   0.114F * static_cast<float>(pixels[i + 2 * plane]));
}

void saturate(double ratio, const Shape& shape, std::span<std::uint8_t> pixels) {
  if (shape.channels != 3) return;
  const auto plane = static_cast<std::size_t>(shape.width * shape.height);
  for (std::size_t i = 0; i < plane; ++i) {
    const float grey = grey_at(shape, pixels, i);
    for (std::size_t c = 0; c < 3; ++c) pixels[c * plane + i] = blend(pixels[c * plane + i], grey, ratio);
  }
}

void change_contrast(double ratio, const Shape& shape, std::span<std::uint8_t> pixels) {
  const auto plane = static_cast<std::size_t>(shape.width * shape.height);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < plane; ++i) sum += grey_at(shape, pixels, i);
  const float mean = static_cast<float>(sum) / static_cast<float>(plane);
  for (std::uint8_t& each : pixels) each = blend(each, mean, ratio);
}

// From or beyond the mean of a pixel and its neighbours, in which it counts five times; the edge has no such mean.
void sharpen(double ratio, const Shape& shape, std::span<std::uint8_t> pixels) {
  const auto width = static_cast<std::size_t>(shape.width);
  const auto height = static_cast<std::size_t>(shape.height);
  if (width <= 2 || height <= 2) return;
  const std::vector<std::uint8_t> from(pixels.begin(), pixels.end());
  for (std::size_t c = 0; c < static_cast<std::size_t>(shape.channels); ++c) {
    const std::uint8_t* plane = from.data() + c * width * height;
    for (std::size_t y = 0; y < height; ++y) {
      for (std::size_t x = 0; x < width; ++x) {
        const std::uint8_t* at = plane + y * width + x;
        int blurred = *at;
        if (y > 0 && y + 1 < height && x > 0 && x + 1 < width) {
          const int sum = at[-1] + at[1] + *(at - width - 1) + *(at - width) + *(at - width + 1) + at[width - 1] +
                          at[width] + at[width + 1] + 5 * *at;
          blurred = (2 * sum + 13) / 26;  // sum / 13, which is never halfway between two bytes
        }
        pixels[c * width * height + y * width + x] = blend(*at, static_cast<float>(blurred), ratio);
      }
    }
  }
}

void stretch(std::span<std::uint8_t> plane) {
  const auto [low, high] = std::minmax_element(plane.begin(), plane.end());
  if (*low == *high) return;
  const float minimum = *low;
  // Two roundings, like PyTorch's number / tensor.
  const float scale = 1 / (static_cast<float>(*high) - minimum) * kWhite;
  for (std::uint8_t& each : plane) each = to_byte((static_cast<float>(each) - minimum) * scale);
}

void equalize(std::span<std::uint8_t> plane) {
  std::array<std::uint64_t, 256> counts{};
  for (const std::uint8_t each : plane) ++counts[each];
  const auto last = std::find_if(counts.rbegin(), counts.rend(), [](std::uint64_t count) { return count > 0; });
  const std::uint64_t step = (plane.size() - *last) / 255;
  if (step == 0) return;
  std::array<std::uint8_t, 256> table{};
  std::uint64_t below = 0;
  for (std::size_t value = 0; value < 256; ++value) {
    if (value > 0) table[value] = static_cast<std::uint8_t>(std::min<std::uint64_t>(255, (below + step / 2) / step));
    below += counts[value];
  }
  for (std::uint8_t& each : plane) each = table[each];
}

}  // namespace

double rand_augment_magnitude(AugmentOp op, int number, const ImageSize& image) {
  const auto shift = [](std::int64_t side) { return static_cast<float>(150.0 / 331.0 * static_cast<double>(side)); };
  return magnitude_of(op, number,
                      {.shear = 0.3F,
                       .translate_x = shift(image.width),
                       .translate_y = shift(image.height),
                       .rotate = 30,
                       .ratio = 0.9F,
                       .removed_bits = 4});
}

double trivial_augment_magnitude(AugmentOp op, int number) {
  return magnitude_of(
      op, number,
      {.shear = 0.99F, .translate_x = 32, .translate_y = 32, .rotate = 135, .ratio = 0.99F, .removed_bits = 6});
}

std::vector<AugmentStep> rand_augment_steps(const RandAugment& config, const ImageSize& image, std::uint64_t key) {
  Random random(key, rand_stream);
  std::vector<AugmentStep> steps;
  for (int i = 0; i < config.operations; ++i) {
    const auto op = static_cast<AugmentOp>(random.below(kAugmentOps));
    steps.push_back({op, signed_magnitude(op, rand_augment_magnitude(op, config.magnitude, image), random)});
  }
  return steps;
}

AugmentStep trivial_augment_step(std::uint64_t key) {
  Random random(key, trivial_stream);
  const auto op = static_cast<AugmentOp>(random.below(kAugmentOps));
  const auto number = static_cast<int>(random.below(kAugmentMagnitudes));
  return {op, signed_magnitude(op, trivial_augment_magnitude(op, number), random)};
}

void apply(const AugmentStep& step, const Shape& shape, std::span<std::uint8_t> pixels) {
  const double ratio = 1 + step.magnitude;
  const auto each_plane = [&](void (*change)(std::span<std::uint8_t>)) {
    const std::size_t plane = static_cast<std::size_t>(shape.width * shape.height);
    for (std::size_t c = 0; c < static_cast<std::size_t>(shape.channels); ++c) {
      change(pixels.subspan(c * plane, plane));
    }
  };
  switch (step.op) {
    case AugmentOp::identity:
      return;
    case AugmentOp::shear_x:
    case AugmentOp::shear_y:
    case AugmentOp::translate_x:
    case AugmentOp::translate_y:
    case AugmentOp::rotate:
      return warp(affine_of(step, shape), shape, pixels);
    case AugmentOp::brightness:
      for (std::uint8_t& each : pixels) each = blend(each, 0, ratio);
      return;
    case AugmentOp::color:
      return saturate(ratio, shape, pixels);
    case AugmentOp::contrast:
      return change_contrast(ratio, shape, pixels);
    case AugmentOp::sharpness:
      return sharpen(ratio, shape, pixels);
    case AugmentOp::posterize: {
      const unsigned mask = 0x100U - (1U << (8U - static_cast<unsigned>(step.magnitude)));
      for (std::uint8_t& each : pixels) each = static_cast<std::uint8_t>(each & mask);
      return;
    }
    case AugmentOp::solarize:
      for (std::uint8_t& each : pixels) {
        if (static_cast<double>(each) >= step.magnitude) each = static_cast<std::uint8_t>(255 - each);
      }
      return;
    case AugmentOp::auto_contrast:
      return each_plane(stretch);
    case AugmentOp::equalize:
      return each_plane(equalize);
  }
}

}  // namespace ddp
