#include "optim/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "options/options.h"

namespace ddp {

double LossScale::at(std::int64_t step) const {
  if (interval_ == 0) return scale_;
  constexpr std::int64_t kEnough = 64;
  const std::int64_t doubled = std::min(kEnough, (step - since_) / interval_);
  return std::min(kMostLossScale, std::ldexp(scale_, static_cast<int>(doubled)));
}

std::int64_t LossScale::steps_since(std::int64_t step) const {
  const std::int64_t all = step - since_;
  return interval_ == 0 ? all : all % interval_;
}

bool LossScale::lower(std::int64_t step) {
  const double scale = at(step);
  if (scale <= 1) return false;
  scale_ = scale / 2;
  since_ = step;
  return true;
}

}  // namespace ddp
