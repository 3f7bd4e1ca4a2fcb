#include "metrics/phases.h"

#include <algorithm>
#include <numeric>

namespace ddp {

const char* phase_key(Phase phase) {
  constexpr std::array<const char*, kPhaseCount> keys = {
      "data_wait", "forward", "backward", "exposed_communication", "optimizer", "evaluation", "checkpoint", "other"};
  return keys[static_cast<std::size_t>(phase)];
}

std::string phase_label(Phase phase) {
  std::string label = phase_key(phase);
  std::replace(label.begin(), label.end(), '_', ' ');
  return label;
}

double PhaseTotals::sum() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

PhaseTotals& PhaseTotals::operator+=(const PhaseTotals& other) {
  for (std::size_t i = 0; i < kPhaseCount; ++i) seconds[i] += other.seconds[i];
  return *this;
}

PhaseTotals& PhaseTotals::operator-=(const PhaseTotals& other) {
  for (std::size_t i = 0; i < kPhaseCount; ++i) seconds[i] -= other.seconds[i];
  return *this;
}

PhaseTotals PhaseClock::totals() {
  switch_to(phase_);
  return totals_;
}

PhaseTotals PhaseClock::lap() {
  PhaseTotals lap = totals();
  lap -= at_last_lap_;
  at_last_lap_ = totals_;
  return lap;
}

}  // namespace ddp
