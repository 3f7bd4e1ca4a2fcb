#include "data/pipeline/augmentation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "data/images/every_vector_width.h"
#include "data/images/grey.h"
#include "data/pipeline/sample_key.h"

namespace ddp {
namespace {

// Streams of a sample's key.
enum Stream : std::uint64_t { region_stream, move_stream, flip_stream, jitter_stream, cutout_stream, erasing_stream };

constexpr int kFactorBits = 12;

std::uint8_t clamped(std::int32_t value) { return static_cast<std::uint8_t>(std::clamp(value, 0, 255)); }

std::int32_t fixed_point(double value) { return static_cast<std::int32_t>(std::lround(value * (1 << kFactorBits))); }

// byte * factor + offset, both with kFactorBits fractional bits.
DDP_EVERY_VECTOR_WIDTH void scale_bytes(std::span<std::uint8_t> bytes, std::int32_t factor, std::int32_t offset) {
  const std::int32_t rounded = offset + (1 << (kFactorBits - 1));
  for (std::uint8_t& byte : bytes) byte = clamped((byte * factor + rounded) >> kFactorBits);
}

DDP_EVERY_VECTOR_WIDTH std::int32_t mean_grey(const Shape& shape, std::span<const std::uint8_t> pixels) {
  const auto plane = static_cast<std::size_t>(shape.height * shape.width);
  std::uint64_t sum = 0;
  for (std::size_t begin = 0; begin < plane; begin += 4096) {
    // Partial sums of 32 bits, which the compiler can vectorise.
    const std::size_t end = std::min(plane, begin + 4096);
    std::uint32_t part = 0;
    if (shape.channels == 3) {
      for (std::size_t i = begin; i < end; ++i) {
        part += static_cast<std::uint32_t>(grey_of(pixels[i], pixels[i + plane], pixels[i + 2 * plane]));
      }
    } else {
      for (std::size_t i = begin; i < end; ++i) part += pixels[i];
    }
    sum += part;
  }
  return static_cast<std::int32_t>((sum + plane / 2) / plane);
}

// Interpolates between each pixel and its grey value.
DDP_EVERY_VECTOR_WIDTH void saturate(const Shape& shape, std::int32_t factor, std::span<std::uint8_t> pixels) {
  const auto plane = static_cast<std::size_t>(shape.height * shape.width);
  std::uint8_t* red = pixels.data();
  std::uint8_t* green = red + plane;
  std::uint8_t* blue = green + plane;
  for (std::size_t i = 0; i < plane; ++i) {
    const std::int32_t grey = grey_of(red[i], green[i], blue[i]);
    const std::int32_t base = (grey << kFactorBits) + (1 << (kFactorBits - 1));
    red[i] = clamped((base + (red[i] - grey) * factor) >> kFactorBits);
    green[i] = clamped((base + (green[i] - grey) * factor) >> kFactorBits);
    blue[i] = clamped((base + (blue[i] - grey) * factor) >> kFactorBits);
  }
}

std::int64_t below(Random& random, std::int64_t bound) {
  return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(bound)));
}

// The square of `side` around (x, y), clipped to the image.
Rectangle square_around(const Shape& shape, std::int64_t x, std::int64_t y, std::int64_t side) {
  const std::int64_t left = std::max<std::int64_t>(0, x - side / 2);
  const std::int64_t right = std::min(shape.width, x - side / 2 + side);
  const std::int64_t top = std::max<std::int64_t>(0, y - side / 2);
  const std::int64_t bottom = std::min(shape.height, y - side / 2 + side);
  return {left, top, right - left, bottom - top};
}

// Areas of an image whose size edits do not change.
std::int32_t i32(std::int64_t value) { return static_cast<std::int32_t>(value); }
EditedArea area_of(const Rectangle& area) {
  return {i32(area.top), i32(area.top + area.height), i32(area.left), i32(area.left + area.width)};
}
Rectangle rectangle_of(const EditedArea& area) {
  return {area.left, area.top, area.right - area.left, area.bottom - area.top};
}

// Width and height with a fraction of the area uniform in `part`, and their ratio log-uniform in `ratios`.
std::pair<std::int64_t, std::int64_t> random_sides(double whole, const std::pair<double, double>& part,
                                                   const std::pair<double, double>& ratios, Random& random) {
  const double area = whole * (part.first + (part.second - part.first) * random.uniform_double());
  const double low = std::log(ratios.first);
  const double ratio = std::exp(low + (std::log(ratios.second) - low) * random.uniform_double());
  return {std::lround(std::sqrt(area * ratio)), std::lround(std::sqrt(area / ratio))};
}

}  // namespace

Region random_region(const ImageSize& size, std::uint64_t key) {
  Random random(key, region_stream);
  const auto image_width = static_cast<double>(size.width);
  const auto image_height = static_cast<double>(size.height);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const auto [width, height] = random_sides(image_width * image_height, {0.08, 1}, {3.0 / 4, 4.0 / 3}, random);
    if (width < 1 || height < 1 || width > size.width || height > size.height) continue;
    const std::int64_t x = below(random, size.width - width + 1);
    const std::int64_t y = below(random, size.height - height + 1);
    return {static_cast<double>(x), static_cast<double>(y), static_cast<double>(width), static_cast<double>(height)};
  }
  // For an extreme aspect ratio: a central crop.
  const double width = std::min(image_width, image_height * 4 / 3);
  const double height = std::min(image_height, image_width * 4 / 3);
  return {(image_width - width) / 2, (image_height - height) / 2, width, height};
}

Rectangle erased_rectangle(double probability, const Shape& shape, std::uint64_t key) {
  Random random(key, erasing_stream);
  if (random.uniform_double() >= probability) return {};
  const auto whole = static_cast<double>(shape.height * shape.width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    // torchvision's ratio is height / width.
    const auto [height, width] = random_sides(whole, {0.02, 0.33}, {0.3, 3.3}, random);
    if (width < 1 || height < 1 || width >= shape.width || height >= shape.height) continue;
    const std::int64_t top = below(random, shape.height - height + 1);
    const std::int64_t left = below(random, shape.width - width + 1);
    return {left, top, width, height};
  }
  return {};
}

JitterDraw draw_jitter(const std::array<double, 3>& strength, std::uint64_t key) {
  Random random(key, jitter_stream);
  JitterDraw draw;
  shuffle(draw.order, random);
  for (std::size_t i = 0; i < 3; ++i) {
    const double low = std::max(0.0, 1 - strength[i]);
    draw.factors[i] = low + (1 + strength[i] - low) * random.uniform_double();
  }
  return draw;
}

void apply_jitter(const JitterDraw& draw, const Shape& shape, std::span<std::uint8_t> pixels) {
  for (const std::uint32_t which : draw.order) {
    const std::int32_t factor = fixed_point(draw.factors[which]);
    if (factor == 1 << kFactorBits) continue;
    if (which == 0) {
      scale_bytes(pixels, factor, 0);
    } else if (which == 1) {
      scale_bytes(pixels, factor, ((1 << kFactorBits) - factor) * mean_grey(shape, pixels));
    } else if (shape.channels == 3) {
      saturate(shape, factor, pixels);
    }
  }
}

void mirror(const Shape& shape, std::span<std::uint8_t> pixels) {
  const auto width = static_cast<std::ptrdiff_t>(shape.width);
  for (auto row = pixels.begin(); row != pixels.end(); row += width) std::reverse(row, row + width);
}

void move_image(const Shape& shape, std::int64_t right, std::int64_t down, std::span<std::uint8_t> pixels) {
  const std::int64_t width = std::max<std::int64_t>(0, shape.width - std::abs(right));
  const std::int64_t from_x = std::max<std::int64_t>(0, -right);
  const std::int64_t to_x = std::max<std::int64_t>(0, right);
  for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
    std::uint8_t* plane = pixels.data() + channel * shape.height * shape.width;
    for (std::int64_t i = 0; i < shape.height; ++i) {
      // In the direction opposite to the shift, so that no row is read after it was written.
      const std::int64_t y = down > 0 ? shape.height - 1 - i : i;
      std::uint8_t* row = plane + y * shape.width;
      const std::int64_t from_y = y - down;
      if (from_y < 0 || from_y >= shape.height || width == 0) {
        std::fill_n(row, shape.width, std::uint8_t{0});
        continue;
      }
      std::memmove(row + to_x, plane + from_y * shape.width + from_x, static_cast<std::size_t>(width));
      std::fill_n(row, to_x, std::uint8_t{0});
      std::fill(row + to_x + width, row + shape.width, std::uint8_t{0});
    }
  }
}

void reflect_borders(const Shape& shape, std::int64_t right, std::int64_t down, std::span<std::uint8_t> pixels) {
  const std::int64_t width = shape.width;
  const std::int64_t height = shape.height;
  DDP_ASSERT(2 * std::abs(right) < width && 2 * std::abs(down) < height);
  const std::int64_t last_x = width - 1 + std::min<std::int64_t>(0, right);
  const std::int64_t last_y = height - 1 + std::min<std::int64_t>(0, down);
  for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
    std::uint8_t* plane = pixels.data() + channel * height * width;
    const auto copy_row = [plane, width](std::int64_t to, std::int64_t from) {
      std::copy_n(plane + from * width, width, plane + to * width);
    };
    for (std::int64_t y = 0; y < down; ++y) copy_row(y, 2 * down - y);
    for (std::int64_t y = last_y + 1; y < height; ++y) copy_row(y, 2 * last_y - y);
    for (std::uint8_t* row = plane; row < plane + height * width; row += width) {
      for (std::int64_t x = 0; x < right; ++x) row[x] = row[2 * right - x];
      for (std::int64_t x = last_x + 1; x < width; ++x) row[x] = row[2 * last_x - x];
    }
  }
}

void paint_square(const Shape& shape, std::int64_t x, std::int64_t y, std::int64_t side,
                  std::span<const std::uint8_t> fill, std::span<std::uint8_t> pixels) {
  paint(shape, square_around(shape, x, y, side), fill, pixels);
}

void paint(const Shape& shape, const Rectangle& area, std::span<const std::uint8_t> fill,
           std::span<std::uint8_t> pixels) {
  for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
    const std::uint8_t value = fill[static_cast<std::size_t>(channel)];
    for (std::int64_t row = area.top; row < area.top + area.height; ++row) {
      std::uint8_t* begin = pixels.data() + (channel * shape.height + row) * shape.width + area.left;
      std::fill(begin, begin + area.width, value);
    }
  }
}

ImageEdit edit_of(const Augmentation& a, const Shape& shape, std::uint64_t key) {
  ImageEdit edit;
  if (a.crop_padding > 0) {
    Random random(key, move_stream);
    edit.right = i32(below(random, 2 * a.crop_padding + 1) - a.crop_padding);
    edit.down = i32(below(random, 2 * a.crop_padding + 1) - a.crop_padding);
  }
  const bool flipped =
      a.flip && (a.flip_alternates ? alternating_bit(key) : (Random(key, flip_stream).next_u32() >> 31U) != 0);
  edit.mirrored = flipped ? 1 : 0;
  if (a.cutout > 0) {
    Random random(key, cutout_stream);
    const std::int64_t x = below(random, shape.width);
    const std::int64_t y = below(random, shape.height);
    edit.filled[0] = area_of(square_around(shape, x, y, a.cutout));
  }
  if (a.erasing > 0) edit.filled[1] = area_of(erased_rectangle(a.erasing, shape, key));
  return edit;
}

AugmentedDataset::AugmentedDataset(std::unique_ptr<Dataset> plain, Augmentation augmentation)
    : Dataset(plain->name(), plain->size(), plain->shape(), plain->classes()),
      plain_(std::move(plain)),
      augmentation_(std::move(augmentation)) {
  name_classes(plain_->class_names());
  augmentation_.fill.resize(static_cast<std::size_t>(shape().channels));
}

std::int64_t AugmentedDataset::read(std::int64_t index, std::span<std::uint8_t> pixels) const {
  return plain_->read(index, pixels);
}

std::int64_t AugmentedDataset::read_plain(std::int64_t index, std::span<std::uint8_t> pixels) const {
  return plain_->read_plain(index, pixels);
}

std::int64_t AugmentedDataset::read_region(std::int64_t index, const RegionChooser& choose,
                                           std::span<std::uint8_t> pixels) const {
  return plain_->read_region(index, choose, pixels);
}

std::int64_t AugmentedDataset::read_training(std::int64_t index, std::uint64_t key,
                                             std::span<std::uint8_t> pixels) const {
  const Augmentation& a = augmentation_;
  const ImageEdit edit = edit_of(a, shape(), key);
  const bool flipped = edit.mirrored != 0;
  std::int64_t found = 0;
  if (a.random_resized_crop) {
    const auto choose = [key, flipped](const ImageSize& size) {
      Region region = random_region(size, key);
      region.mirrored = flipped;
      return region;
    };
    found = plain_->read_region(index, choose, pixels);
  } else {
    found = plain_->read_plain(index, pixels);
  }
  if (a.crop_padding > 0) {
    move_image(shape(), edit.right, edit.down, pixels);
    if (a.crop_reflects) reflect_borders(shape(), edit.right, edit.down, pixels);
  }
  if (flipped && !a.random_resized_crop) mirror(shape(), pixels);
  const ImageSize size{.width = shape().width, .height = shape().height};
  for (const AugmentStep& step : rand_augment_steps(a.rand_augment, size, key)) apply(step, shape(), pixels);
  if (a.trivial_augment) apply(trivial_augment_step(key), shape(), pixels);
  if (a.color_jitter != std::array<double, 3>{0, 0, 0}) {
    apply_jitter(draw_jitter(a.color_jitter, key), shape(), pixels);
  }
  for (const EditedArea& area : edit.filled) paint(shape(), rectangle_of(area), a.fill, pixels);
  return found;
}

}  // namespace ddp
