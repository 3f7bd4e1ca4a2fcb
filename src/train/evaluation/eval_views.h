// The views of an image over which an evaluation averages the logits (test-time augmentation).
//
//   for (const EvalView& view : eval_views(EvalViews::mirror, image)) show(view, image, pixels);
//
// plain: the image. mirror: the image and its mirror image, half each. mirror-shift: these, a quarter each, and an eighth
// each the image shifted by one pixel to the lower right or the upper left, and their mirror images; the uncovered border
// is filled by reflection (K. Jordan's airbench94, 2024).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types/shape.h"
#include "options/options.h"

namespace ddp {

struct EvalView {
  std::int64_t shift = 0;  // to the right and down
  bool mirrored = false;   // after the shift
  float weight = 1;        // of its logits; the weights add up to 1
};

// Throws Error(usage) for images that are too small to be shifted.
std::vector<EvalView> eval_views(EvalViews which, const Shape& image);

// Turns an image [channels][height][width] into a view of it.
void show(const EvalView& view, const Shape& shape, std::span<std::uint8_t> pixels);

}  // namespace ddp
