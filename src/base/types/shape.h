// The shape of one sample: an image, or an activation, of [channels][height][width] values.
//
//   constexpr Shape kImage{3, 32, 32};
//   std::vector<std::uint8_t> pixels(kImage.size());
//
// A feature vector has height = width = 1.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp {

struct Shape {
  std::int64_t channels = 0;
  std::int64_t height = 1;
  std::int64_t width = 1;

  constexpr std::int64_t elements() const { return channels * height * width; }
  constexpr std::size_t size() const { return static_cast<std::size_t>(elements()); }
  constexpr bool operator==(const Shape&) const = default;
};

}  // namespace ddp
