// RandAugment (Cubuk et al.: "RandAugment: Practical automated data augmentation with a reduced search space", 2020) and
// TrivialAugment (Müller, Hutter: "TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation", 2021): operations
// chosen at random, as in torchvision's RandAugment and TrivialAugmentWide on uint8 tensors: the same operations, 31
// magnitudes, nearest pixels, and black where there is none.
//
//   for (const AugmentStep& step : rand_augment_steps({.operations = 2, .magnitude = 9}, {32, 32}, key)) {
//     apply(step, {3, 32, 32}, pixels);
//   }
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types/shape.h"
#include "data/formats/region.h"

namespace ddp {

// In torchvision's order, from which one is drawn.
enum class AugmentOp : std::uint8_t {
  identity,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,
  brightness,
  color,
  contrast,
  sharpness,
  posterize,
  solarize,
  auto_contrast,
  equalize,
};
inline constexpr int kAugmentOps = 14;
inline constexpr int kAugmentMagnitudes = 31;  // numbered from 0

struct AugmentStep {
  AugmentOp op = AugmentOp::identity;
  // torchvision's: a shear's tangent, pixels, degrees, a factor less 1, bits, a threshold; 0 for the other operations.
  double magnitude = 0;
};

struct RandAugment {
  int operations = 0;  // per image, one after the other; 0: none
  int magnitude = 9;
};

// The magnitude with a number, in fp32 like torchvision's, before its random sign; for images of that size.
double rand_augment_magnitude(AugmentOp op, int number, const ImageSize& image);
double trivial_augment_magnitude(AugmentOp op, int number);

// Functions of the sample's key.
std::vector<AugmentStep> rand_augment_steps(const RandAugment& config, const ImageSize& image, std::uint64_t key);
AugmentStep trivial_augment_step(std::uint64_t key);

// On planes [shape.channels][height][width], one or three of them, in place.
void apply(const AugmentStep& step, const Shape& shape, std::span<std::uint8_t> pixels);

}  // namespace ddp
