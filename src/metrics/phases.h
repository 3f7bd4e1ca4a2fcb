// Time by phase: every instant belongs to exactly one phase, so the phases add up to the wall time.
//
//   PhaseClock clock;                       // in Phase::other
//   clock.switch_to(Phase::data_wait);      // one reading of the clock, nothing else
//   work();
//   clock.switch_to(Phase::forward);
//   ...
//   PhaseTotals since_last_line = clock.lap();
//   PhaseTotals since_start = clock.totals();
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "base/clock.h"

namespace ddp {

enum class Phase {
  data_wait,              // waiting for the next batch
  forward,                // through the model and the loss
  backward,               // gradients
  exposed_communication,  // waiting for other ranks' gradients, beyond what backward hides
  optimizer,              // the update
  evaluation,
  checkpoint,
  other,  // everything else: logging, startup and shutdown
};

inline constexpr std::size_t kPhaseCount = 8;
inline constexpr std::array<Phase, kPhaseCount> kPhases = {
    Phase::data_wait, Phase::forward,    Phase::backward,   Phase::exposed_communication,
    Phase::optimizer, Phase::evaluation, Phase::checkpoint, Phase::other};

// "data_wait", as in metrics.jsonl.
const char* phase_key(Phase phase);
// "data wait", for console output.
std::string phase_label(Phase phase);

// Seconds by phase.
struct PhaseTotals {
  std::array<double, kPhaseCount> seconds{};

  double& operator[](Phase phase) { return seconds[static_cast<std::size_t>(phase)]; }
  double operator[](Phase phase) const { return seconds[static_cast<std::size_t>(phase)]; }
  // Sum of all phases: the wall time.
  double sum() const;
  PhaseTotals& operator+=(const PhaseTotals& other);
  PhaseTotals& operator-=(const PhaseTotals& other);
  friend bool operator==(const PhaseTotals&, const PhaseTotals&) = default;
};

class PhaseClock {
 public:
  using ReadClock = double (*)();  // seconds, from any origin

  explicit PhaseClock(Phase first = Phase::other, ReadClock read = now) : read_(read), phase_(first), since_(read()) {}

  // Attributes the time until now to the current phase, and from now on to `phase`.
  void switch_to(Phase phase) {
    const double time = read_();
    totals_[phase_] += time - since_;
    since_ = time;
    phase_ = phase;
  }

  Phase phase() const { return phase_; }

  // Reattributes `seconds` from one phase to another once device timings are known.
  void move(Phase from, Phase to, double seconds) {
    totals_[from] -= seconds;
    totals_[to] += seconds;
  }

  // Since construction.
  PhaseTotals totals();
  // Since the last lap() or construction.
  PhaseTotals lap();

 private:
  ReadClock read_;
  Phase phase_;
  double since_;
  PhaseTotals totals_;
  PhaseTotals at_last_lap_;
};

// Switches to a phase for the duration of a scope, then back.
class PhaseScope {
 public:
  PhaseScope(PhaseClock& clock, Phase phase) : clock_(clock), before_(clock.phase()) { clock_.switch_to(phase); }
  ~PhaseScope() { clock_.switch_to(before_); }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  PhaseClock& clock_;
  Phase before_;
};

}  // namespace ddp
