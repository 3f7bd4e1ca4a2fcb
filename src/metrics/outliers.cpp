#include "metrics/outliers.h"

#include <algorithm>
#include <cmath>

namespace ddp {
namespace {

double median_of(std::array<double, Outliers::kWindow>& values) {
  auto* const middle = values.begin() + Outliers::kWindow / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::optional<Outlier> Outliers::note(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  std::optional<Outlier> found;
  if (count_ >= kWindow) {
    std::array<double, kWindow> sorted = values_;
    const double median = median_of(sorted);
    for (double& each : sorted) each = std::abs(each - median);
    // Values that hardly vary, as in a run that has converged, must not make rounding errors stand out.
    const double deviation = std::max(1.4826 * median_of(sorted), 1e-3 * std::abs(median));
    const double z = deviation > 0 ? (value - median) / deviation : 0;
    const bool follows = reported_z_ > 0 && count_ - reported_at_ < kWindow && z < 2 * reported_z_;
    if (z >= kThreshold && !follows) {
      found = Outlier{value, median, z};
      reported_at_ = count_;
      reported_z_ = z;
    }
  }
  values_[count_ % kWindow] = value;
  ++count_;
  return found;
}

}  // namespace ddp
