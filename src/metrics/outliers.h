// Finds values that stand out from those of the steps before: a spike of the loss, or of the norm of the gradient.
//
//   Outliers losses;
//   if (const auto found = losses.note(2.31)) ...   // found->median, found->z
//
// The scale is robust: the median of the last kWindow values, and their median absolute deviation times 1.4826, which is
// the standard deviation of a normal distribution. So earlier outliers, and a slow trend, hardly change it. Of outliers that
// follow one another only the first is reported, and those that are at least twice as far off.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

namespace ddp {

struct Outlier {
  double value = 0;
  double median = 0;  // of the values before
  double z = 0;       // its distance from the median in standard deviations
};

class Outliers {
 public:
  static constexpr std::size_t kWindow = 128;
  // Deviations above the median from which on a value is an outlier; one of 10^15 normally distributed values would be.
  static constexpr double kThreshold = 8;

  // The outlier to report: nothing until the window is full. A non-finite value is not noted: it has a report of its own.
  std::optional<Outlier> note(double value);

 private:
  std::array<double, kWindow> values_{};
  std::size_t count_ = 0;  // of all values noted
  std::size_t reported_at_ = 0;
  double reported_z_ = 0;  // 0: nothing was reported
};

}  // namespace ddp
