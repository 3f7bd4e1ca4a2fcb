// The factor of the loss in fp16, so that small gradients do not become zero there (Micikevicius et al., 2018, "Mixed Precision
// Training"). As PyTorch's GradScaler does, it is doubled after some steps and halved when the gradient overflows; such a step
// is then repeated instead of left out. Powers of two change no digit of a gradient, except where fp16 has fewer of them.
//
//   LossScale scale(65536, 2000);
//   scale.at(step);               // of the update with this number, from 0
//   if (!scale.lower(step)) ...   // it overflowed, and cannot be lowered further
#pragma once

#include <cstdint>

namespace ddp {

class LossScale {
 public:
  // Always 1.
  LossScale() = default;
  // `interval`: steps after which it is doubled, up to kMostLossScale; 0: never. In effect from step `since` on.
  LossScale(double scale, std::int64_t interval, std::int64_t since = 0)
      : scale_(scale), interval_(interval), since_(since) {}

  double at(std::int64_t step) const;
  // Halves it from `step` on. False if it is 1, and stays so.
  [[nodiscard]] bool lower(std::int64_t step);
  // How many of the steps before this one had its scale.
  std::int64_t steps_since(std::int64_t step) const;

 private:
  double scale_ = 1;
  std::int64_t interval_ = 0;
  std::int64_t since_ = 0;
};

}  // namespace ddp
