#include "train/evaluation/eval_views.h"

#include <algorithm>

#include "base/error.h"
#include "data/pipeline/augmentation.h"

namespace ddp {

std::vector<EvalView> eval_views(EvalViews which, const Shape& image) {
  if (which == EvalViews::plain) return {{}};
  if (which == EvalViews::mirror) return {{0, false, 0.5F}, {0, true, 0.5F}};
  check(
      std::min(image.height, image.width) > 2, ExitCode::usage,
      "--eval-views mirror-shift requires images of at least 3x3 pixels, but these are {}x{}; use --eval-views mirror",
      image.height, image.width);
  std::vector<EvalView> views = {{0, false, 0.25F}, {0, true, 0.25F}};
  for (const std::int64_t shift : {1, -1}) {
    for (const bool mirrored : {false, true}) views.push_back({shift, mirrored, 0.125F});
  }
  return views;
}

void show(const EvalView& view, const Shape& shape, std::span<std::uint8_t> pixels) {
  if (view.shift != 0) {
    move_image(shape, view.shift, view.shift, pixels);
    reflect_borders(shape, view.shift, view.shift, pixels);
  }
  if (view.mirrored) mirror(shape, pixels);
}

}  // namespace ddp
