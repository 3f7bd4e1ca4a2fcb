#include "data/pipeline/progressive.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/images/resample.h"

namespace ddp {
namespace {

// Sizes between the first and the last are multiples of this, which strides divide.
constexpr std::int64_t kSizeMultiple = 4;

std::int64_t side_between(std::int64_t first, std::int64_t full, std::int64_t stage, std::int64_t stages) {
  if (stage == 0) return first;
  if (stage == stages - 1) return full;
  const double exact =
      static_cast<double>(first) + static_cast<double>((full - first) * stage) / static_cast<double>(stages - 1);
  const std::int64_t rounded = std::lround(exact / kSizeMultiple) * kSizeMultiple;
  return std::clamp(rounded, first, full);
}

std::string sides_of(const Shape& shape) { return fmt::format("{}x{}", shape.height, shape.width); }

// `full` holds an image of the full size on entry.
void resize_planes(std::span<const std::uint8_t> full, const Shape& from, const Shape& to,
                   std::span<std::uint8_t> pixels) {
  thread_local Resampler resampler;
  const auto plane = static_cast<std::size_t>(from.height * from.width);
  const auto resized = static_cast<std::size_t>(to.height * to.width);
  const Region all{0, 0, static_cast<double>(from.width), static_cast<double>(from.height)};
  for (std::size_t c = 0; c < static_cast<std::size_t>(from.channels); ++c) {
    resampler.run({full.data() + c * plane, from.width, from.height, 1}, all, {1, to.height, to.width},
                  pixels.subspan(c * resized, resized));
  }
}

// A buffer of this thread.
std::span<std::uint8_t> full_image(std::size_t bytes) {
  thread_local std::vector<std::uint8_t> image;
  image.resize(bytes);
  return image;
}

}  // namespace

ProgressiveSizes::ProgressiveSizes(const ProgressiveConfig& config, const Shape& full) {
  const std::int64_t height = config.height;
  const std::int64_t width = config.width;
  check(height <= full.height && width <= full.width && (height < full.height || width < full.width), ExitCode::usage,
        "--progressive-size {}x{} is not below the size of the images, {}", height, width, sides_of(full));
  const std::int64_t parts = config.stages - 1;
  const std::int64_t epochs = config.end - config.begin;
  check(parts <= epochs, ExitCode::usage,
        "--progressive-stages {} requires at least {} epochs from --progressive-begin {} to --progressive-end {}",
        config.stages, parts, config.begin, config.end);
  for (std::int64_t stage = 0; stage < config.stages; ++stage) {
    const Shape shape{full.channels, side_between(height, full.height, stage, config.stages),
                      side_between(width, full.width, stage, config.stages)};
    if (!shapes_.empty() && shapes_.back() == shape) continue;
    shapes_.push_back(shape);
    // The first epoch e with (e - begin) * parts / epochs >= stage.
    first_epochs_.push_back(stage == 0 ? 0 : config.begin + (stage * epochs + parts - 1) / parts);
  }
}

std::size_t ProgressiveSizes::at_epoch(std::int64_t epoch) const {
  std::size_t index = 0;
  while (index + 1 < shapes_.size() && first_epochs_[index + 1] <= epoch) ++index;
  return index;
}

std::int64_t ProgressiveSizes::epochs_from(std::int64_t epoch) const {
  const std::size_t next = at_epoch(epoch) + 1;
  return next == shapes_.size() || first_epochs_[next] == kNever ? 0 : first_epochs_[next] - epoch;
}

std::string ProgressiveSizes::text() const {
  std::string text = sides_of(shapes_.front());
  if (larger_in_evaluations()) return fmt::format("{}, in evaluations {}", text, sides_of(shapes_.back()));
  for (std::size_t i = 1; i < shapes_.size(); ++i) {
    text += fmt::format(", from epoch {} on {}", first_epochs_[i] + 1, sides_of(shapes_[i]));
  }
  return text;
}

ResizedDataset::ResizedDataset(const Dataset& full, const Shape& shape)
    : Dataset(full.name(), full.size(), shape, full.classes()), full_(full) {
  DDP_ASSERT(shape.channels == full.shape().channels);
  name_classes(full.class_names());
}

std::int64_t ResizedDataset::read(std::int64_t index, std::span<std::uint8_t> pixels) const {
  const std::span<std::uint8_t> image = full_image(full_.shape().size());
  const std::int64_t found = full_.read(index, image);
  resize_planes(image, full_.shape(), shape(), pixels);
  return found;
}

std::int64_t ResizedDataset::read_plain(std::int64_t index, std::span<std::uint8_t> pixels) const {
  const std::span<std::uint8_t> image = full_image(full_.shape().size());
  const std::int64_t found = full_.read_plain(index, image);
  resize_planes(image, full_.shape(), shape(), pixels);
  return found;
}

std::int64_t ResizedDataset::read_training(std::int64_t index, std::uint64_t key,
                                           std::span<std::uint8_t> pixels) const {
  const std::span<std::uint8_t> image = full_image(full_.shape().size());
  const std::int64_t found = full_.read_training(index, key, image);
  resize_planes(image, full_.shape(), shape(), pixels);
  return found;
}

}  // namespace ddp
