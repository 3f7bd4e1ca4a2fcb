// mixup (Zhang, Cisse, Dauphin, Lopez-Paz: "mixup: Beyond Empirical Risk Minimization", 2018): convex combinations of
// pairs of samples and of their labels. Each sample of a pair has its own weight. CutMix (Yun et al.: "CutMix:
// Regularization Strategy to Train Strong Classifiers", 2019): the samples of a pair exchange a rectangle.
//
//   const std::int32_t share = mixing_share(0.2, key);   // weight of the sample itself, in 256ths
//   mix_pair(a, b, share, other_share);
//   exchange(shape, cut_rectangle(1.0, shape, key), a, b);
//
// Mixed pixels are rounded to bytes, an error of at most half a level.
#pragma once

#include <cstdint>
#include <span>

#include "base/types/shape.h"

namespace ddp {

constexpr std::int32_t kWholeShare = 256;

// Drawn from Beta(alpha, alpha), alpha > 0, and rounded to 256ths: a function of (alpha, key) alone.
std::int32_t mixing_share(double alpha, std::uint64_t key);

// a = share_a a + (1 - share_a) b, and likewise b with the old value of a.
void mix_pair(std::span<std::uint8_t> a, std::span<std::uint8_t> b, std::int32_t share_a, std::int32_t share_b);

// The rectangle with these corners at the upper left, within an image.
struct Rectangle {
  std::int64_t left = 0;
  std::int64_t top = 0;
  std::int64_t width = 0;
  std::int64_t height = 0;

  friend bool operator==(const Rectangle&, const Rectangle&) = default;
};

// Whether a pair is mixed by CutMix: with both parameters above 0 with probability 1/2.
bool cuts_pair(double mixup, double cutmix, std::uint64_t key);

// CutMix's rectangle, a function of its arguments: with w drawn from Beta(alpha, alpha), sqrt(1 - w) of the image's height
// and width, rounded down, around a random pixel, clipped to the image.
Rectangle cut_rectangle(double alpha, const Shape& shape, std::uint64_t key);

// Exchanges the rectangle in all channels of two images [channels][height][width].
void exchange(const Shape& shape, const Rectangle& cut, std::span<std::uint8_t> a, std::span<std::uint8_t> b);

}  // namespace ddp
